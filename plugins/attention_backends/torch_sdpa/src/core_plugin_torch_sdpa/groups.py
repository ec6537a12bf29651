"""How the prompts of a step are put together for attention without a cache."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView

PADDED = 1.25
"""Short prompts are padded to one length together while that adds no more than a quarter to their tokens."""

SHORT = 32
"""Prompts of more tokens go alone: their own work outweighs a call's cost, and nothing of them is copied."""


@dataclass(frozen=True, slots=True)
class Group:
    """Short prompts of similar length.

    Attributes:
        index: `(prompts, length)` int64, the place in the step of each token; padding repeats a prompt's last token.
        mask: `(prompts, 1, 1, length)` additive, or None when nothing is padding.
        places: `(tokens,)` int64, where in the flattened group the real tokens are.
        tokens: `(tokens,)` int64, where in the step they belong.
    """

    index: Tensor
    mask: Tensor | None
    places: Tensor
    tokens: Tensor


@dataclass(frozen=True, slots=True)
class Run:
    """Prompts of equal length one after another in the step: a batch as they stand. Often it is a single one.

    Attributes:
        begin, end: Where their tokens are in the step.
        length: Tokens of each.
    """

    begin: int
    end: int
    length: int


@dataclass(frozen=True, slots=True)
class Division:
    """A step, divided."""

    runs: list[Run]
    groups: list[Group]


class EncoderGroups:
    """Divides a step once for all layers."""

    def __init__(self, batch: BatchView, dtype: torch.dtype) -> None:
        self._batch, self._dtype = batch, dtype
        self._division: Division | None = None

    def get(self) -> Division:
        """Return the division; it is made when the first layer asks, since most models have no use for it."""
        if self._division is None:
            starts = self._batch.query_starts.astype(np.int64)
            lengths, device = np.diff(starts), self._batch.slots.device
            groups = similar(lengths, np.flatnonzero(lengths <= SHORT))
            single = np.concatenate([np.flatnonzero(lengths > SHORT), *(rows for rows in groups if len(rows) == 1)])
            self._division = Division(
                runs(starts, np.sort(single)),
                [self._group(rows, starts, device) for rows in groups if len(rows) > 1],
            )
        return self._division

    def _group(self, rows: np.ndarray, starts: np.ndarray, device: torch.device) -> Group:
        lengths = starts[rows + 1] - starts[rows]
        ramp = np.arange(int(lengths.max()))
        real = ramp < lengths[:, None]
        index = starts[rows][:, None] + np.minimum(ramp, lengths[:, None] - 1)
        mask = None
        if not real.all():
            hidden = torch.from_numpy(~real).to(device)
            mask = torch.zeros(real.shape, dtype=self._dtype, device=device).masked_fill_(hidden, float("-inf"))
            mask = mask[:, None, None]
        places, tokens = torch.from_numpy(np.flatnonzero(real)), torch.from_numpy(index[real])
        return Group(torch.from_numpy(index).to(device), mask, places.to(device), tokens.to(device))


def runs(starts: np.ndarray, rows: np.ndarray) -> list[Run]:
    """Return `rows`, which ascend, with neighbours of equal length together."""
    found: list[Run] = []
    for begin, end in zip(starts[rows].tolist(), starts[rows + 1].tolist(), strict=True):
        last = found[-1] if found else None
        if last is not None and last.end == begin and last.length == end - begin:
            found[-1] = Run(last.begin, end, last.length)
        else:
            found.append(Run(begin, end, end - begin))
    return found


def similar(lengths: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Return `rows` in groups of similar length, each ascending; padding stays within `PADDED`."""
    order = rows[np.argsort(-lengths[rows], kind="stable")]
    groups, begin = [], 0
    while begin < len(order):
        rest = lengths[order[begin:]]
        padded = rest[0] * np.arange(1, len(rest) + 1)
        size = int(np.flatnonzero(padded <= PADDED * np.cumsum(rest))[-1]) + 1
        groups.append(np.sort(order[begin : begin + size]))
        begin += size
    return groups
