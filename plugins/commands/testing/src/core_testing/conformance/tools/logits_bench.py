"""A logits processor driven by hand: requests on rows, their tokens on the device, and logits to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core.api.descriptors import LogitsSpec
from core.api.logits import LogitsContext, LogitsProcessor
from core.api.sampling_params import SamplingParams
from core.worker.sampling.field_rows import FieldRows
from core_testing.conformance.device_samples import LogitsSample
from core_testing.conformance.outcome import Unavailable, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of
from core_testing.conformance.tools.options import some_options

VOCABULARY = 97
"""No multiple of anything."""

ROWS = 6
LONGEST = 40
PROMPTS = ((5,), (3, 9, 9, 4), tuple(range(20)), (7, 7, 7, 7, 7, 7, 2))
OUTPUTS = ((), (9, 4), (1, 2, 3, 4, 5), (8,))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: what it asks of the plugin, its prompt, and its output so far."""

    args: Mapping[str, Any]
    prompt: tuple[int, ...]
    output: tuple[int, ...] = ()

    @property
    def params(self) -> SamplingParams:
        """Its sampling parameters."""
        return SamplingParams(temperature=0.7, seed=5, extra_args=dict(self.args) or None)


class LogitsBench:
    """One processor with its rows.

    Attributes:
        tokens: What `LogitsContext.tokens` is: `(ROWS, LONGEST + 1)` int32.
        fields: What the rows' requests say of the processor's sampling parameters.
        counts: Output tokens of each row.
        lengths: Prompt and output tokens of each row.
    """

    def __init__(self, subject: Subject, vocabulary: int = VOCABULARY) -> None:
        self.device, self.vocabulary = device_of(subject), vocabulary
        self.tokens = torch.zeros((ROWS, LONGEST + 1), dtype=torch.int32, device=self.device)
        self.counts = np.zeros(ROWS, np.int64)
        self.lengths = np.zeros(ROWS, np.int64)
        self.fields = FieldRows.of(subject.spec(LogitsSpec), ROWS)
        context = LogitsContext(self.device, vocabulary, ROWS, self.tokens, some_options(subject), self.fields.numbers)
        self.processor: LogitsProcessor = subject.impl()(context)

    def admit(self, row: int, asked: Asked, *, anyway: bool = False) -> bool:
        """Give a row to a request; return whether it concerns the processor.

        Args:
            anyway: Ask the processor even about a request that leaves its sampling parameters as they are, as core does
                not.
        """
        ids = [token % self.vocabulary for token in (*asked.prompt, *asked.output)]
        self.tokens[row] = 0
        self.tokens[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
        self.counts[row], self.lengths[row] = len(asked.output), len(ids)
        prompt = np.array(ids[: len(asked.prompt)], np.int32)
        before = prompt.copy()
        if not self.fields.admit(row, asked.params) and not anyway:
            return False
        concerned = self.processor.admit(row, asked.params, prompt)
        require(isinstance(concerned, bool), f"admit gives {concerned!r}, due is True or False")
        require(np.array_equal(prompt, before), "admit writes to the prompt")
        return concerned

    def say(self, row: int, token: int) -> None:
        """Give a row one more token of output."""
        place = int(self.lengths[row])
        self.tokens[row, place] = token % self.vocabulary
        self.lengths[row], self.counts[row] = place + 1, self.counts[row] + 1

    def apply(self, rows: Sequence[int], seed: int = 0) -> Tensor:
        """Return each row's logits after the processor, in the order of `rows`; a row's logits depend on it alone."""
        logits = torch.stack([self.logits(row, seed) for row in rows])
        self.processor.apply(logits, np.array(rows, np.int64), self.counts[list(rows)])
        return logits

    def drafted(self, row: int, draft: Sequence[int]) -> Tensor:
        """Return a row's logits before and behind each token of `draft (n,)`, `(n + 1, vocabulary)`, in one call."""
        places, length = np.arange(len(draft) + 1), int(self.lengths[row])
        self.tokens[row, length : length + len(draft)] = torch.tensor(draft, dtype=torch.int32)
        logits = torch.stack([self.logits(row)] * len(places))
        self.processor.apply(logits, np.full(len(places), row, np.int64), self.counts[row] + places)
        return logits

    def logits(self, row: int, seed: int = 0) -> Tensor:
        """Return a row's logits before the processor, `(vocabulary,)` float32."""
        rng = torch.Generator().manual_seed(1000 * seed + row)
        return (4 * torch.randn(self.vocabulary, generator=rng)).to(self.device)


def requests(subject: Subject) -> list[Asked]:
    """Return requests that concern the processor, each row's own: those of its samples, or without arguments.

    Raises:
        Unavailable: It reads arguments, and no sample has any.
    """
    samples = subject.samples(LogitsSample)
    spec = subject.spec(LogitsSpec)
    if not samples and (spec.args or spec.fields):
        subject.need_samples(LogitsSample)
    given = [dict(sample.args) for sample in samples] or [{}]
    found = [
        Asked(args, PROMPTS[(place + turn) % 4], OUTPUTS[(2 * place + turn) % 4])
        for turn in range(ROWS)
        for place, args in enumerate(given)
    ]
    if not any(LogitsBench(subject).admit(0, asked) for asked in found[: 2 * len(given)]):
        raise Unavailable("no request of its samples concerns it: admit always gives False")
    return found
