"""Speculative decoding in the worker: a drafter's guesses become drafts in the token pool."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from core.api.drafters import Drafter
from core.api.participants import Parts, SampledStep, WorkerParticipant
from core.api.steps import NewRow, StepPlan, StepResult
from core.engine.participants.drafts import Drafted


class DraftsWorkerHalf(WorkerParticipant):
    """Asks a drafter when a step begins whose rows may run drafts, and writes what it guesses into the pool.

    What the drafter raises, and tokens that are none, cost the drafts of that step.

    Args:
        most: Most tokens of one guess.
        pool: The token pool, `(max_rows, tokens)` int32, in memory of the host.
    """

    parts = Parts(result=Drafted)

    def __init__(self, name: str, drafter: Drafter, most: int, vocab_size: int, pool: Tensor) -> None:
        self.name, self._drafter, self._vocab_size = name, drafter, vocab_size
        self._tokens = self._known_tokens(pool)
        self._shown = self._tokens.view()
        self._shown.flags.writeable = False
        self._out = np.zeros((len(pool), most), np.int32)
        self._admitted = np.zeros(len(pool), bool)
        self._drafted: Drafted | None = None

    def _known_tokens(self, pool: Tensor) -> np.ndarray:
        """Return the tokens of all rows on the host, `(max_rows, tokens)` int32."""
        tokens: np.ndarray = pool.numpy()
        return tokens

    def begin(self, plan: StepPlan) -> Iterable[int] | None:
        """Tell the drafter of new rows. One that it cannot take runs without drafts."""
        self._drafted = None
        refused: Exception | None = None
        for new in plan.new_rows:
            try:
                self._admit(new)
            except Exception as error:
                refused = error
        if refused is not None:
            raise refused
        return None

    def _admit(self, new: NewRow) -> None:
        if self._admitted[new.row]:
            self._admitted[new.row] = False
            self._drafter.release(new.row)
        self._drafter.admit(new.row, new.prompt)
        self._admitted[new.row] = True

    def drafts(self, rows: np.ndarray, known: np.ndarray, most: np.ndarray) -> np.ndarray | None:
        """Have the drafter guess, and write its guesses behind the rows' tokens."""
        served = self._admitted[rows]
        if not served.any():
            return None
        counts = np.zeros(len(rows), np.int64)
        counts[served] = self._guess(rows[served], known[served], most[served])
        self._drafted = Drafted(rows.astype(np.int32), counts.astype(np.int32))
        return counts

    def _guess(self, rows: np.ndarray, known: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Return how many drafts each row has now. Raises `ValueError` if the drafter's answer is none."""
        width = int(most.max())
        out = self._out[: len(rows), :width]
        rows.flags.writeable = known.flags.writeable = False
        counts = np.asarray(self._drafter.propose(rows, known, self._shown, out))
        if counts.shape != rows.shape or counts.dtype.kind not in "iu":
            raise ValueError(f"propose() gave {counts.dtype} {counts.shape}, not {len(rows)} integers")
        if len(counts) and not 0 <= counts.min() <= counts.max() <= width:
            raise ValueError(f"propose() says that it wrote {counts.min()} to {counts.max()} tokens, not 0 to {width}")
        counts = np.minimum(counts, most).astype(np.int64)
        used = np.arange(width) < counts[:, None]
        ids, of = out[used], np.repeat(np.arange(len(rows)), counts)
        wrong = (ids < 0) | (ids >= self._vocab_size)
        if wrong.any():
            raise ValueError(f"propose() gave token {ids[wrong][0]}; the vocabulary has {self._vocab_size}")
        if len(ids):
            self._write(rows[of], known[of] + np.nonzero(used)[1], ids)
        given: np.ndarray = counts
        return given

    def _write(self, rows: np.ndarray, places: np.ndarray, ids: np.ndarray) -> None:
        self._tokens[rows, places] = ids

    def end(self, plan: StepPlan, result: StepResult) -> None:
        """Tell the engine half how many drafts were run."""
        if self._drafted is not None:
            result.parts[self.name] = self._drafted


class MirroredDrafts(DraftsWorkerHalf):
    """The same beside a device with memory of its own: the drafter reads a copy of the pool that follows it."""

    def __init__(self, name: str, drafter: Drafter, most: int, vocab_size: int, pool: Tensor) -> None:
        super().__init__(name, drafter, most, vocab_size, pool)
        self._pool = pool

    def _known_tokens(self, pool: Tensor) -> np.ndarray:
        return np.zeros(pool.shape, np.int32)

    def _admit(self, new: NewRow) -> None:
        given = np.concatenate([new.prompt, new.generated])
        self._tokens[new.row, : len(given)] = given
        super()._admit(new)

    def _write(self, rows: np.ndarray, places: np.ndarray, ids: np.ndarray) -> None:
        super()._write(rows, places, ids)
        device = self._pool.device
        row, place, token = (torch.from_numpy(one).to(device, non_blocking=True) for one in (rows, places, ids))
        self._pool[row, place] = token

    def sampled(self, step: SampledStep) -> None:
        """Follow the pool."""
        self._tokens[step.rows, step.known] = step.tokens
