"""The memory of recurrent states: how many rows it holds, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core.api.errors import EngineError
from core.worker.allocate import zeros
from core.worker.memory import gib

if TYPE_CHECKING:
    from core.api.platform import MemorySnapshot
    from core.config.resolved import EngineConfig
    from core.layers.states import StateMemory

MOST = 0.5
"""Share of the memory for keys, values and states that states take at most: beyond it fewer rows run."""


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A slot for each row.

    Attributes:
        rows: How many, as many as run at once.
        row_bytes: Of all states of one request.
    """

    states: Sequence[StateMemory]
    rows: int
    row_bytes: int

    @property
    def num_bytes(self) -> int:
        """Bytes of all slots."""
        return self.rows * self.row_bytes

    def allocate(self, device: torch.device, *, apart: bool) -> None:
        """Make the memory and bind every state to its own. Arguments as of `CachePlan.allocate`."""
        with torch.inference_mode(False):
            for state in self.states:
                state.memory = zeros((self.rows, *state.shape), state.dtype, device, apart=apart)

    def describe(self) -> str:
        """Return one line for the start-up table; empty for a model without states."""
        each = f"{self.row_bytes / 2**20:.2f} MiB"
        return f"{gib(self.num_bytes)}, {self.rows} requests of {each}" if self.states else ""


def plan_states(
    config: EngineConfig, states: Sequence[StateMemory], memory: MemorySnapshot, *, unread: int = 0
) -> StatePlan:
    """Decide for how many rows there is memory: for all that may run, or as many as fit into half of what is free.

    Args:
        memory: As it is now; with a `peak`, of what is left beside that.
        unread: Bytes that weights will take, which are not read yet.

    Raises:
        EngineError: CORE-E127, not even one row fits.
    """
    wanted = config.options.scheduler.max_num_seqs
    row_bytes = sum(state.num_bytes for state in states)
    if not states:
        return StatePlan((), wanted, 0)
    free = max(0, memory.total - memory.peak if memory.peak else memory.free - unread)
    fitting = int(free * config.options.kv.memory_fraction * MOST) // row_bytes
    if not fitting:
        raise EngineError(
            "CORE-E127",
            f"The recurrent states of one request take {gib(row_bytes)}, and {gib(free)} of memory is free for them "
            "and for keys and values.",
            hint="Raise --memory-fraction, or use a machine with more memory.",
        )
    return StatePlan(states, min(wanted, fitting), row_bytes)
