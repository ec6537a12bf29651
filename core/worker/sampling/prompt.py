"""Log-probabilities of prompt tokens, for the rows that asked for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from core.api.steps import StepPlan, StepResult
from core.worker.rows import RowTable
from core.worker.sampling.batch import Feature
from core.worker.sampling.logprobs import LogprobTensors, fetched, joined, top_logprobs
from core.worker.sampling.params import RowParams

CHUNK = 256
"""Positions scored at a time: `CHUNK x vocab` logits in float32 exist at once."""

NOT_FINITE = "CORE-E121 The model produced logits that are not finite numbers for this request's prompt."


@dataclass(slots=True)
class PromptScores:
    """Positions that a step scored, by index into the plan's rows: their tables on the device."""

    tables: dict[int, LogprobTensors] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        """Return what is to be fetched."""
        return [tensor for table in self.tables.values() for tensor in table.tensors()]

    def read(self, arrays: Sequence[np.ndarray], result: StepResult) -> None:
        """Put what was fetched of `tensors` into the result; a row whose numbers are not finite fails."""
        for number, i in enumerate(self.tables):
            table = fetched(arrays[3 * number : 3 * number + 3])
            if np.isfinite(table.values[:, 0]).all():
                result.prompt_logprobs[i] = table
            else:
                result.errors.setdefault(i, NOT_FINITE)


class PromptScorer:
    """Scores each prompt position once: position `p` scores token `p + 1`.

    Args:
        project: Hidden states to logits.
    """

    def __init__(self, project: Callable[[Tensor], Tensor], rows: RowTable, params: RowParams) -> None:
        self._project = project
        self._rows = rows
        self._params = params
        self._next = np.zeros(len(params.flags), dtype=np.int64)
        self._asked: set[int] = set()

    def admit(self, row: int) -> None:
        """Begin a new request's prompt."""
        self._next[row] = 0
        if self._params.flags[row] & Feature.PROMPT_LOGPROBS:
            self._asked.add(row)
        else:
            self._asked.discard(row)

    def score(self, step: StepPlan, query_starts: np.ndarray, hidden: Tensor) -> PromptScores:
        """Score the prompt positions of this step; a prompt computed again after a preemption is not scored again."""
        scores = PromptScores()
        if not self._asked:
            return scores
        for i in np.flatnonzero(self._params.flags[step.rows] & Feature.PROMPT_LOGPROBS).tolist():
            row, start = int(step.rows[i]), int(step.starts[i])
            begin = max(start, int(self._next[row]))
            end = min(start + int(step.counts[i]), int(self._rows.prompt_lens[row]) - 1)
            if begin >= end:
                continue
            first = int(query_starts[i]) + begin - start
            scores.tables[i] = self._table(hidden[first : first + end - begin], row, begin)
            self._next[row] = end
        return scores

    def _table(self, hidden: Tensor, row: int, position: int) -> LogprobTensors:
        alternatives = int(self._params.prompt_logprobs[row])
        targets = self._rows.tokens[row, position + 1 : position + 1 + len(hidden)].long()
        parts = []
        for begin in range(0, len(hidden), CHUNK):
            part = slice(begin, begin + CHUNK)
            logprobs = self._project(hidden[part]).float().log_softmax(-1)
            parts.append(top_logprobs(logprobs, targets[part], alternatives))
        return joined(parts)
