"""Results of the sampler, on the device until the step's results are fetched together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import Tensor

from core.api.steps import TopLogprobs
from core.worker.sampling.logprobs import LogprobTensors, extended, fetched, split_rows

NOT_FINITE = "CORE-E121 The model produced logits that are not finite numbers for this request."
NOTHING_LEFT = (
    "CORE-E122 No token is left to sample: the grammar, allowed_token_ids, bad_words, logit_bias and min_tokens"
    " together exclude every one."
)


class Listed(NamedTuple):
    """Log-probabilities of the rows that asked.

    Attributes:
        places: `(m,)` their indices in the batch.
        alternatives: `(m,)` how many of the best tokens each wants.
        further: Entry of `places` -> ids of tokens that it wants besides, and their values on the device.
    """

    places: np.ndarray
    alternatives: np.ndarray
    table: LogprobTensors
    further: Mapping[int, tuple[list[int], Tensor]]

    def tensors(self) -> list[Tensor]:
        """Return what is to be fetched."""
        return [*self.table.tensors(), *(values for _, values in self.further.values())]

    def read(self, arrays: Sequence[np.ndarray]) -> dict[int, TopLogprobs]:
        """Return index -> log-probabilities, from what was fetched of `tensors`."""
        entries = split_rows(fetched(arrays[:3]), self.alternatives)
        for (i, (ids, _)), values in zip(self.further.items(), arrays[3:], strict=True):
            entries[i] = extended(entries[i], ids, values)
        return dict(zip(self.places.tolist(), entries, strict=True))


@dataclass(slots=True)
class SampledOnHost:
    """The same on the host.

    Attributes:
        tokens: `(n,)` int32; of rows in `errors`, any valid token.
        logprobs: Index -> log-probabilities of rows that asked.
        errors: Index -> why no token could be chosen for this row.
    """

    tokens: np.ndarray
    logprobs: dict[int, TopLogprobs]
    errors: dict[int, str]

    def take(self, kept: np.ndarray) -> SampledOnHost:
        """Return what was chosen at the `kept (m,)` indices, which ascend."""
        new = {int(index): i for i, index in enumerate(kept)} if self.logprobs or self.errors else {}
        return SampledOnHost(
            self.tokens[kept],
            {new[index]: entry for index, entry in self.logprobs.items() if index in new},
            {new[index]: error for index, error in self.errors.items() if index in new},
        )


@dataclass(slots=True)
class Sampled:
    """Results of the sampler, on the device.

    Attributes:
        tokens: `(n,)` int64; of rows that failed, any valid token.
        listed: Log-probabilities, part by part.
    """

    tokens: Tensor
    listed: list[Listed] = field(default_factory=list)
    _checks: list[tuple[np.ndarray | None, Tensor] | dict[int, str]] = field(default_factory=list)

    def check(self, places: np.ndarray | None, best: Tensor) -> None:
        """Have rows fail whose best logit, of `best (m,)` float32, is not finite.

        Args:
            places: `(m,)` their indices; None: all in order.
        """
        self._checks.append((places, best))

    def fail(self, errors: dict[int, str]) -> None:
        """Have rows fail, by index; the first reason of a row counts, that of an earlier check before this one."""
        self._checks.append(errors)

    def tensors(self) -> list[Tensor]:
        """Return what is to be fetched."""
        values = [check[1] for check in self._checks if not isinstance(check, dict)]
        return [self.tokens, *values, *(tensor for one in self.listed for tensor in one.tensors())]

    def read(self, arrays: Sequence[np.ndarray]) -> SampledOnHost:
        """Return what was chosen, from what was fetched of `tensors`."""
        rest = iter(arrays)
        tokens = next(rest).astype(np.int32)
        errors: dict[int, str] = {}
        for check in self._checks:
            found = check if isinstance(check, dict) else _failed(check[0], next(rest))
            for index, message in found.items():
                errors.setdefault(index, message)
        logprobs: dict[int, TopLogprobs] = {}
        for one in self.listed:
            logprobs.update(one.read([next(rest) for _ in one.tensors()]))
        return SampledOnHost(tokens, {index: entry for index, entry in logprobs.items() if index not in errors}, errors)


def _failed(places: np.ndarray | None, best: np.ndarray) -> dict[int, str]:
    """Return index -> error of the rows whose best logit is not finite."""
    sound = np.isfinite(best)
    if sound.all():
        return {}
    return {
        i if places is None else int(places[i]): NOTHING_LEFT if best[i] == -np.inf else NOT_FINITE
        for i in np.flatnonzero(~sound).tolist()
    }
