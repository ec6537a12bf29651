"""The platform's graph facet: steps as programs of native calls."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import ReferenceType, ref

import numpy as np
import torch
from torch import Tensor

from core.api.attention import AttentionPlan, BatchView
from core.api.facets import Forward, GraphFacet
from core.api.layers import StepInputs
from core.api.states import StateRows
from core.api.steps import StepShape
from core_plugin_cpu.native.attention import Batch
from core_plugin_cpu.native.partial import NotReplayableError
from core_plugin_cpu.native.program import Inputs, Program
from core_plugin_cpu.native.record import Trial, record_step
from core_plugin_cpu.native.torchcalls import Turn

CAPACITIES = (2053, 8209)
"""Tokens that programs are recorded with. The first is what hardly any step exceeds, so that the program recorded while
the engine starts is the only one: a program of fewer tokens saves nothing, its memory is what its steps use in any
case. Steps of more tokens than the last are not worth a program: the calls' own cost is lost in the work. They are
prime, so that no size of a model is taken for a number of tokens."""

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class PaddedStep:
    """Inputs to record with: `size` rows of one token each, all of them at the start of block 0, the null block."""

    token_ids: Tensor
    positions: Tensor
    plans: Sequence[AttentionPlan]
    batches: Sequence[Batch]
    states: StateRows | None
    token_types: None = None
    arrays: tuple[()] = ()

    @staticmethod
    def of(size: int, groups: int = 1) -> PaddedStep:
        """Make the inputs of a step of `size` tokens for a model with so many cache groups."""
        # Memory of its own for each of them: by their addresses the program tells them apart.
        zeros, positions, held, fresh, *slots = torch.zeros(4 + groups, size, dtype=torch.int64).unbind()
        starts, lengths = np.arange(size + 1, dtype=np.int32), np.ones(size, dtype=np.int32)
        tables = torch.zeros(groups, size, 1, dtype=torch.int32).unbind()
        batches = [Batch.of(BatchView(starts, lengths, *own, 1, 1)) for own in zip(tables, slots)]
        # Rows with states are those that were scheduled, of which attention may have several made.
        return PaddedStep(zeros, positions, batches, batches, StateRows(held, fresh, starts.copy()))

    @property
    def plan(self) -> AttentionPlan:
        """The plan of the first cache group."""
        return self.plans[0]

    def inputs(self) -> Inputs:
        """Return where the step's inputs are."""
        batch = self.batches[0]
        places = {
            self.token_ids.data_ptr(): "token_ids",
            self.positions.data_ptr(): "positions",
            batch.query_starts: "query_starts",
            batch.seq_lens: "seq_lens",
        }
        of_states = {} if self.states is None else _of_states(self.states)
        places |= {address: slot for slot, address in of_states.items() if slot != "state_rows"}
        for group, own in enumerate(self.batches):
            places |= {own.slots: _of_group("slots", group), own.table: _of_group("table", group)}
        return Inputs(len(self.token_ids), places)


class ProgramGraph:
    """A recorded forward pass over up to as many tokens as it was recorded with."""

    def __init__(self, program: Program, out: Tensor) -> None:
        self._program, self._out = program, out

    def replay(self, step: StepInputs) -> Tensor:
        """Run the program on the inputs of `step`; the result is overwritten by the next replay."""
        batches = [batch for batch in step.plans if isinstance(batch, Batch)]
        if len(batches) < len(step.plans):
            kinds = ", ".join(type(plan).__name__ for plan in step.plans)
            raise TypeError(f"recorded with native attention, replayed with a {kinds}")
        batch = batches[0]
        tokens = len(step.token_ids)
        if tokens != batch.tokens or tokens != len(step.positions) or tokens > len(self._out):
            counts = f"{tokens} token ids, {len(step.positions)} positions and {batch.tokens} slots"
            raise ValueError(f"a program of {len(self._out)} tokens cannot run {counts}")
        values = {
            "tokens": tokens,
            "rows": batch.rows,
            "token_ids": step.token_ids.data_ptr(),
            "positions": step.positions.data_ptr(),
            "query_starts": batch.query_starts,
            "seq_lens": batch.seq_lens,
            "table_stride": batch.table_stride,
            "table_width": batch.table_width,
        }
        if step.states is not None:
            values |= _of_states(step.states)
        for group, own in enumerate(batches):
            values[_of_group("slots", group)], values[_of_group("table", group)] = own.slots, own.table
        self._program.set(values)
        self._program.run(self._turn(step))
        return self._out[:tokens]

    def describe(self) -> str:
        """Return how many calls the program makes, and where it is cut."""
        return self._program.describe()

    def _turn(self, step: StepInputs) -> Turn | None:
        """Return what the torch operations of the program take from a step; None if it has none."""
        if not self._program.operations:
            return None
        return Turn(len(step.token_ids), {"token_ids": step.token_ids, "positions": step.positions})


class EagerGraph:
    """Stands in for a forward pass that cannot be recorded: runs it as it is."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward

    def replay(self, step: StepInputs) -> Tensor:
        """Run the forward pass."""
        return self._forward(step)


class ProgramGraphs(GraphFacet):
    """Records a program for each of `CAPACITIES` that is needed: prompts run the same calls as decode rows.

    Attributes:
        refused: Why forward passes are not recorded; empty while they are.
    """

    widest = CAPACITIES[-1]

    def __init__(self) -> None:
        self.refused = ""
        self._last: ReferenceType[ProgramGraph] | None = None  # whoever drops it wants its memory back

    def describe(self) -> str:
        """Return what the program last recorded does, or why there is none; empty before the first step."""
        if self.refused:
            return f"none: {self.refused}"
        last = None if self._last is None else self._last()
        return "" if last is None else last.describe()

    def key(self, shape: StepShape) -> int | None:
        """Return the number of tokens that the step's program holds; None for very wide steps."""
        return None if self.refused else _capacity(shape.num_tokens)

    def capture(self, forward: Forward, step: StepInputs) -> ProgramGraph | EagerGraph:
        """Record `forward`, if all of it is native calls."""
        if not all(isinstance(plan, Batch) for plan in step.plans):
            self.refused = "the attention backend is not cpu_native"
            return EagerGraph(forward)
        size, groups = _capacity(len(step.token_ids)) or len(step.token_ids), len(step.plans)
        try:
            program, out = record_step(lambda tokens: _trial(forward, tokens, groups), size)
        except NotReplayableError as error:
            self.refused = str(error)
            _LOG.debug("decode steps run call by call: %s", error)
            return EagerGraph(forward)
        if len(out) != size:
            raise ValueError(f"the forward pass gave {len(out)} rows for {size} tokens")
        graph = ProgramGraph(program, out)
        self._last = ref(graph)
        return graph


def _trial(forward: Forward, tokens: int, groups: int) -> Trial:
    padded = PaddedStep.of(tokens, groups)
    return Trial(lambda: forward(padded), padded.inputs(), padded)


def _of_states(rows: StateRows) -> dict[str, int]:
    """Return the slots of a program that rows with states fill."""
    return {
        "state_slots": rows.slots.data_ptr(),
        "fresh": rows.fresh.data_ptr(),
        "state_starts": rows.starts.ctypes.data,
        "state_rows": len(rows.slots),
    }


def _of_group(slot: str, group: int) -> str:
    """Return the name of a slot that each cache group has one of: `slots`, `slots.1`, ..."""
    return f"{slot}.{group}" if group else slot


def _capacity(tokens: int) -> int | None:
    """Return the least capacity that holds so many tokens."""
    return next((capacity for capacity in CAPACITIES if tokens <= capacity), None)
