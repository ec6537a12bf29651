"""State of a request's last tokens in a layer: a ring of lines, the token at position p in line `p % lines`.

Which lines hold tokens of the request follows from positions alone, so that nothing is ever cleared.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.api import State


class Single(NamedTuple):
    """Rows of one token: their places in the step, and their slots, `(rows,)`."""

    tokens: Tensor | slice
    slots: Tensor


class Several(NamedTuple):
    """A row of several tokens."""

    begin: int
    end: int
    slot: int


def single(state: State) -> Single | None:
    """Return the rows of one token; None without any."""
    rows = state.rows
    counts = np.diff(rows.starts)
    found = np.flatnonzero(counts == 1)
    if len(found) == len(counts):
        return Single(slice(None), rows.slots)  # nothing is read on the host: graphs can be made of it
    if not len(found):
        return None
    device = rows.slots.device
    tokens = torch.from_numpy(rows.starts[found].astype(np.int64)).to(device)
    return Single(tokens, rows.slots[torch.from_numpy(found).to(device)])


def several(state: State) -> Iterator[Several]:
    """Yield the other rows."""
    starts = state.rows.starts.tolist()
    if any(end - begin > 1 for begin, end in pairwise(starts)):
        for (begin, end), slot in zip(pairwise(starts), state.rows.slots.tolist(), strict=True):
            if end - begin > 1:
                yield Several(begin, end, slot)


def pushed(state: State, rows: Single, lines: Tensor, positions: Tensor) -> Tensor:
    """Keep a token of each row, `lines (rows, ...)`, and return the rings, `(rows, lines, ...)`."""
    state.memory[rows.slots, positions % state.memory.shape[1]] = lines.to(state.memory.dtype)
    return state.memory[rows.slots]


def before(state: State, row: Several, first: int) -> Tensor:
    """Return the `lines - 1` tokens before position `first` of a row, zeros where there are none."""
    count = state.memory.shape[1]
    places = torch.arange(first - count + 1, first, device=state.memory.device)
    held = state.memory[row.slot][places % count]
    return held.masked_fill((places < 0).view(-1, *[1] * (held.dim() - 1)), 0)


def keep(state: State, row: Several, first: int, lines: Tensor) -> None:
    """Keep the last tokens of a row whose tokens in the step, from position `first` on, are `lines (tokens, ...)`."""
    count = state.memory.shape[1]
    tail = lines[-count:]
    places = torch.arange(first + len(lines) - len(tail), first + len(lines), device=lines.device)
    state.memory[row.slot, places % count] = tail.to(state.memory.dtype)
