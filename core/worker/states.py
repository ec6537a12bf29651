"""The memory of recurrent states: how many rows and snapshots it holds, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from core.api.errors import EngineError
from core.worker.allocate import zeros
from core.worker.memory import gib, share

if TYPE_CHECKING:
    import numpy as np

    from core.api.platform import MemorySnapshot
    from core.api.tasks import Task
    from core.config.resolved import EngineConfig
    from core.layers.states import StateMemory

MOST = 0.5
"""Share of the memory for keys, values and states that the states of rows take at most: beyond it fewer rows run."""
MOST_SNAPSHOTS = 0.25
"""The same for snapshots of states."""


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A slot for each row, and behind them those for snapshots.

    Attributes:
        rows: How many, as many as run at once.
        row_bytes: Of all states of one request.
        snapshots: Slots for snapshots.
        room: Snapshots that memory has room for.
        padding: Slots behind all others that are nobody's: one where graphs run steps with rows of padding.
        note: What else the start-up table says.
    """

    states: Sequence[StateMemory]
    rows: int
    row_bytes: int
    snapshots: int = 0
    room: int = 0
    note: str = ""
    padding: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all slots."""
        return self.slots * self.row_bytes

    @property
    def slots(self) -> int:
        """How many there are."""
        return self.rows + self.snapshots + self.padding

    def with_snapshots(self, config: EngineConfig, task: Task, tokens: int) -> StatePlan:
        """Return the plan with as many snapshots as a KV cache of so many `tokens` has intervals, or as fit."""
        if not self.states:
            return self
        wanted, interval = config.options.kv.state_snapshots, config.state_interval
        snapshots = min(-(-tokens // interval) if wanted is None else wanted, self.room)
        without = _without_snapshots(config, task) or ("" if snapshots else "there is no memory for snapshots")
        if without:
            return replace(self, note=f"no prefix caching: {without}")
        return replace(self, snapshots=snapshots, note=f"{snapshots} snapshots, one each {interval} tokens")

    def allocate(self, device: torch.device, *, apart: bool) -> None:
        """Make the memory and bind every state to its own. Arguments as of `CachePlan.allocate`."""
        with torch.inference_mode(False):
            for state in self.states:
                state.memory = zeros((self.slots, *state.shape), state.dtype, device, apart=apart)

    def describe(self) -> str:
        """Return one line for the start-up table; empty for a model without states."""
        each = f"{self.row_bytes / 2**20:.2f} MiB"
        text = f"{gib(self.num_bytes)}, {self.rows} requests of {each}" if self.states else ""
        return f"{text}; {self.note}" if self.note else text


def copy_slots(states: Sequence[StateMemory], copies: np.ndarray) -> None:
    """Copy slots: `copies (n, 2)` holds the one that is read and the one that is written."""
    for source, target in copies.tolist():
        for state in states:
            state.memory[target].copy_(state.memory[source])


def _without_snapshots(config: EngineConfig, task: Task) -> str:
    """Return why no prefixes are shared, whatever there is memory for; empty where they are."""
    options = config.options.kv
    if not options.prefix_caching:
        return "it is switched off"
    if options.state_snapshots == 0:
        return "no snapshots of states are wanted"
    if config.max_model_len <= config.state_interval:
        return "no request is longer than an interval of states"
    if task.whole_prompts or not task.shares_prefixes:
        return "prompts run whole"
    return ""


def plan_states(
    config: EngineConfig, states: Sequence[StateMemory], memory: MemorySnapshot, *, unread: int = 0, padding: int = 0
) -> StatePlan:
    """Decide for how many rows there is memory: for all that may run, or as many as fit into half of what is free.

    Args:
        memory: As it is now; see `share`.
        unread: Bytes that weights will take, which are not read yet.
        padding: As of `StatePlan`.

    Raises:
        EngineError: CORE-E127, not even one row fits.
    """
    wanted = config.options.scheduler.max_num_seqs
    row_bytes = sum(state.num_bytes for state in states)
    if not states:
        return StatePlan((), wanted, 0)
    free = max(0, memory.total - memory.peak if memory.peak else memory.free - unread)
    usable, _ = share(config.options.kv.memory_fraction, memory, unread)
    fitting = int(usable * MOST) // row_bytes - padding
    if fitting < 1:
        raise EngineError(
            "CORE-E127",
            f"The recurrent states of one request take {gib(row_bytes)}, and {gib(free)} of memory is free for them "
            "and for keys and values.",
            hint="Raise --memory-fraction, or use a machine with more memory.",
        )
    room = int(usable * MOST_SNAPSHOTS) // row_bytes
    return StatePlan(states, min(wanted, fitting), row_bytes, room=room, padding=padding)
