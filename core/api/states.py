"""Recurrent states: what a layer keeps of a request beside keys and values. Provisional.

A layer that reads its past by recurrence keeps one tensor of a fixed size for each request: a *state*. All states of a
request live in its *slot*, which it owns from its first step to its end. The layer builder hands out memory for a
state; what is computed with it is an operation, which reads and writes the slots of a step's rows in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class StateRows:
    """The rows of a step, as operations with states see them. Rows are scheduled requests, in batch order.

    Attributes:
        slots: `(rows,)` int64 on the device: each row's slot. No two rows have the same, but for padding (see
            `GraphFacet.fixed`), which is fresh, and whose results nobody reads.
        fresh: `(rows,)` int64 on the device: 1 where a row's first token in this step is the first of its request, so
            that its state counts as zeros, whatever the slot holds; else 0. To be chosen by, never multiplied with: a
            slot may hold anything.
        starts: `(rows + 1,)` int32 numpy, offsets of each row's tokens in the step. All that the host knows: a graph is
            captured with it, and replayed with other slots.
        twins: `starts` on the device, int32; None where it shares the host's memory.
    """

    slots: Tensor
    fresh: Tensor
    starts: np.ndarray
    twins: Tensor | None = None


@dataclass(frozen=True, slots=True)
class State:
    """One state of a layer in one step: what operations take.

    Attributes:
        memory: `(slots, *shape)`; `memory[rows.slots[i]]` is that of row i, read and written in place.
        rows: Whose states these are.
    """

    memory: Tensor = field(repr=False)
    rows: StateRows
