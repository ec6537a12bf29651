"""Steps of one token a row by graphs whose memory stays: padding, and the choice of a graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core.api.errors import CoreError
from core.api.facets import StepShape
from core.api.states import StateRows
from core.layers.guard import blamed
from core.plugins.drivers import describe
from core.plugins.handed import GRAPH
from core.worker.graphs import GraphedForward
from core.worker.inputs import Planner, StepInputs

if TYPE_CHECKING:
    from core.api.attention import AttentionPlan, Replayable
    from core.api.facets import Forward, Graph, GraphFacet
    from core.layers.guard import Owners
    from core.worker.rows import RowTable

log = logging.getLogger(__name__)


class _CaptureError(Exception):
    """The forward pass raised while it was captured; the message says what."""


class _Memory:
    """The inputs of the largest step, on the device and, of what the host knows, on the host as well.

    Smaller steps are the first rows of it. Rows without a request are padding: token 0 at position 0, one token long,
    in block 0, slot 0; where the model keeps states, fresh in the slot that is nobody's.

    Args:
        groups: Cache groups; each has slots and tables of its own.
        nobodys: The slot for states of padding; None: the model keeps none.
    """

    def __init__(self, groups: int, rows: int, columns: int, device: torch.device, nobodys: int | None) -> None:
        with torch.inference_mode(False):
            self.token_ids, self.positions = torch.zeros(2, rows, dtype=torch.int64, device=device)
            self.slots = torch.zeros(groups, rows, dtype=torch.int64, device=device)
            self.starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
            self.lengths = torch.ones(rows, dtype=torch.int32, device=device)
            self.tables = torch.zeros(groups, rows, columns, dtype=torch.int32, device=device)
            self.held = torch.full((rows,), nobodys or 0, dtype=torch.int64, device=device)
            self.fresh = torch.ones(rows, dtype=torch.int64, device=device)
        self._nobodys = nobodys
        self.host_starts = np.arange(rows + 1, dtype=np.int32)
        self.host_lengths = np.ones(rows, dtype=np.int32)
        self._used = 0  # rows that are no padding
        self._width = 0  # columns that may hold blocks

    def view(self, shape: StepShape, block_size: int, group: int, layers: frozenset[int] | None) -> BatchView:
        """Return the batch of a step of this shape, as the layers of a group see it."""
        rows, columns = shape.num_rows, -(-shape.max_seq_len // block_size)
        return BatchView(
            query_starts=self.host_starts[: rows + 1],
            seq_lens=self.host_lengths[:rows],
            block_tables=self.tables[group, :rows, :columns],
            slots=self.slots[group, :rows],
            max_query_len=1,
            max_seq_len=shape.max_seq_len,
            layers=layers,
            twins=(self.starts[: rows + 1], self.lengths[:rows]),
        )

    def states(self, rows: int) -> StateRows | None:
        """Return the first rows as operations with states see them; None for a model without."""
        if self._nobodys is None:
            return None
        starts = self.host_starts[: rows + 1]
        return StateRows(self.held[:rows], self.fresh[:rows], starts, self.starts[: rows + 1])

    def clear(self) -> None:
        """Make padding of all rows: what runs before the next step changes nobody's states."""
        self._pad(0)
        self.tables[:, :, : self._width].zero_()
        self._used = self._width = 0

    def load(self, step: StepInputs, views: Sequence[BatchView]) -> None:
        """Copy a step's inputs, and make padding of the rows behind that the last step used.

        Args:
            views: The batch as the layers of each group see it.
        """
        batch = step.batch
        rows, width = batch.block_tables.shape
        _, lengths = batch.on_device()
        for into, given in (
            (self.token_ids, step.token_ids),
            (self.positions, step.positions),
            (self.lengths, lengths),
        ):
            into[:rows].copy_(given, non_blocking=True)
        self.host_lengths[:rows] = batch.seq_lens
        if step.states is not None:
            self.held[:rows].copy_(step.states.slots, non_blocking=True)
            self.fresh[:rows].copy_(step.states.fresh, non_blocking=True)
        for slots, table, view in zip(self.slots, self.tables, views, strict=True):
            slots[:rows].copy_(view.slots, non_blocking=True)
            table[:rows, :width].copy_(view.block_tables, non_blocking=True)
        if self._width > width:
            self.tables[:, : max(rows, self._used), width : self._width].zero_()
        self._pad(rows)
        self._used, self._width = rows, width

    def _pad(self, rows: int) -> None:
        """Make padding of the rows from `rows` on that the last step used."""
        if self._used <= rows:
            return
        for padded in (self.token_ids, self.positions):
            padded[rows : self._used].zero_()
        for padded in (self.slots, self.tables):
            padded[:, rows : self._used].zero_()
        for padded in (self.lengths, self.fresh):
            padded[rows : self._used].fill_(1)
        self.held[rows : self._used].fill_(self._nobodys or 0)
        self.host_lengths[rows : self._used] = 1


@dataclass(slots=True)
class _FixedStep:
    """A step of one shape, in memory that stays, and its graph."""

    shape: StepShape
    inputs: StepInputs
    views: Sequence[BatchView]
    graph: Graph


class FixedForward(GraphedForward):
    """Runs steps of one token a row by the graphs of a `fixed` facet, others as they are.

    All run as they are where the forward pass cannot be captured: an operation waits for the device, for example. It
    plans attention as well: a step that a graph runs has the graph's plan.

    Args:
        backend: Plans the steps that no graph runs.
        replayable: The same backend's part that makes plans for graphs.
    """

    def __init__(
        self,
        facet: GraphFacet,
        forward: Forward,
        owners: Owners,
        backend: Planner,
        replayable: Replayable,
        rows: RowTable,
    ) -> None:
        super().__init__(facet, forward, owners)
        self._backend, self._replayable = backend, replayable
        self._block_size = rows.block_size
        self._layers = list(rows.layers)
        groups, max_rows, columns = rows.block_tables.shape
        self._limits = StepShape(max_rows, max_rows, 1, rows.width - 1)
        nobodys = len(rows.states[0].memory) - 1 if rows.states else None  # as `StatePlan.padding` says
        self._memory = _Memory(groups, max_rows, columns, rows.device, nobodys)
        self._views: list[BatchView] = []  # of the step that was planned last, one of each group
        self._steps: dict[StepShape, _FixedStep] = {}  # smallest first, where the facet names sizes
        self._chosen: _FixedStep | None = None
        self._sizes: list[StepShape] = []
        self._fault = ""  # why nothing is captured

    def prepare(self) -> None:
        """Capture the steps of all sizes that the facet names, the largest first."""
        with blamed(self._owners.platform, "sizes()"):
            sizes = sorted(self._facet.sizes(self._limits), key=_size)
        self._sizes = [shape for shape in sizes if shape.num_rows <= self._limits.num_rows]
        try:
            self._steps = dict(reversed([(shape, self._captured(shape)) for shape in reversed(self._sizes)]))
        except _CaptureError as error:
            self._give_up(error)

    def planner(self, backend: Planner) -> Planner:
        """Return itself."""
        return self

    def describe(self) -> str:
        """Return one line for the start-up table."""
        if self._fault:
            return f"none: {self._fault}"
        if not self._steps:
            return "captured when first met"
        return f"{len(self._steps)} captured, of up to {max(shape.num_rows for shape in self._steps)} rows"

    def forget(self) -> None:
        """Capture all graphs anew: they read weights that are no longer the model's."""
        self._steps.clear()
        self.prepare()

    def plan(self, batch: BatchView) -> AttentionPlan:
        """Plan a step for the layers of a group: by a graph that holds it, or as it is."""
        group = self._layers.index(batch.layers)
        self._views[group:] = [batch]
        self._chosen = self._fitting(batch)
        return self._backend.plan(batch) if self._chosen is None else self._chosen.inputs.plans[group]

    def _fitting(self, batch: BatchView) -> _FixedStep | None:
        if batch.max_query_len != 1 or self._fault:
            return None
        rows = len(batch.seq_lens)
        if not self._sizes:
            return self._met(StepShape(rows, rows, 1, self._limits.max_seq_len))
        for shape, step in self._steps.items():
            if rows <= shape.num_rows and batch.max_seq_len <= shape.max_seq_len:
                return step
        return None

    def _met(self, shape: StepShape) -> _FixedStep | None:
        """Return the step of this shape, captured if it is met for the first time."""
        if shape not in self._steps and self._facet.key(shape) is not None:
            try:
                self._steps[shape] = self._captured(shape)
            except _CaptureError as error:
                self._give_up(error)
        return self._steps.get(shape)

    def _give_up(self, error: _CaptureError) -> None:
        self._fault = f"{self._owners.model} cannot be captured: {error}"
        self._steps.clear()
        log.warning("CORE-P240 no graphs: %s. Every step runs operation by operation.", self._fault)

    def _captured(self, shape: StepShape) -> _FixedStep:
        rows, size = shape.num_rows, self._block_size
        self._memory.clear()  # a capture may run the forward pass, any number of times
        views = [self._memory.view(shape, size, group, layers) for group, layers in enumerate(self._layers)]
        with blamed(self._owners.attention, "fixed_plan()"):
            plans = [self._replayable.fixed_plan(shape) for _ in views]
        with blamed(self._owners.attention, "refresh()"):
            self._refresh(plans, views)
        inputs = StepInputs(
            token_ids=self._memory.token_ids[:rows],
            positions=self._memory.positions[:rows],
            plans=plans,
            batch=views[0],
            logit_indices=self._memory.positions[:0],
            states=self._memory.states(rows),
        )
        return _FixedStep(shape, inputs, views, self._capture(inputs))

    def _capture(self, step: StepInputs) -> Graph:
        faults: list[Exception] = []

        def watched(step: Any) -> Tensor:
            try:
                return self._forward(step)
            except Exception as error:
                faults.append(error)
                raise

        try:
            with blamed(self._owners.platform, "capture()"):
                return self._handed.fit("capture()", self._facet.capture(watched, step), GRAPH)
        except Exception as error:
            if not faults or isinstance(error, (MemoryError, torch.OutOfMemoryError)):
                raise
            raise _CaptureError(_told(faults[0])) from error

    def _refresh(self, plans: Sequence[AttentionPlan], views: Sequence[BatchView]) -> None:
        for plan, view in zip(plans, views, strict=True):
            self._replayable.refresh(plan, view)

    def _run(self, step: StepInputs) -> Tensor:
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            return self._forward(step)
        self._memory.load(step, self._views)
        self._refresh(chosen.inputs.plans, chosen.views)
        return chosen.graph.replay(chosen.inputs)[: len(step.token_ids)]


def _told(error: Exception) -> str:
    """Return what a forward pass raised, in one line."""
    return (error.message if isinstance(error, CoreError) else describe(error)).rstrip(".")


def _size(shape: StepShape) -> tuple[int, int]:
    return shape.num_rows, shape.max_seq_len
