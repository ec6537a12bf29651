"""Steps by graphs whose memory stays: what is captured, and the choice of a graph."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core.api.attention import BatchView
from core.api.errors import CoreError
from core.api.steps import StepShape
from core.layers.guard import blamed
from core.plugins.drivers import describe
from core.plugins.handed import GRAPH
from core.worker.graphs import GraphedForward, Head, Headed
from core.worker.inputs import Planner, StepInputs
from core.worker.padded import PaddedMemory, mixed

if TYPE_CHECKING:
    from core.api.attention import AttentionPlan, Replayable
    from core.api.facets import Forward, Graph, GraphFacet
    from core.layers.guard import Owners
    from core.worker.rows import RowTable

log = logging.getLogger(__name__)


class _CaptureError(Exception):
    """The forward pass raised while it was captured; the message says what."""


@dataclass(slots=True)
class _FixedStep:
    """A step of one shape, in memory that stays, and its graph."""

    shape: StepShape
    inputs: StepInputs
    views: Sequence[BatchView]
    graph: Graph
    headed: Headed | None = None
    _cut: Headed = ()

    def headed_of(self, tokens: int) -> Headed | None:
        """Return what the head made of the first `tokens` of a step."""
        if self.headed is not None and (not self._cut or len(self._cut[0]) != tokens):
            self._cut = tuple(one[:tokens] for one in self.headed)
        return self._cut or None


class FixedForward(GraphedForward):
    """Runs steps by the graphs of a `fixed` facet: those of one token a row, and those that a mixed graph holds.

    Others run as they are, and so do all where the forward pass cannot be captured: an operation waits for the device,
    for example. It plans attention as well: a step that a graph runs has the graph's plan.

    Args:
        backend: Plans the steps that no graph runs.
        replayable: The same backend's part that makes plans for graphs.
        tokens: Most tokens of the steps that mixed graphs may hold; 0: there are no mixed graphs.
        prompts: Why there are none, if they were asked for.
    """

    def __init__(
        self,
        facet: GraphFacet,
        forward: Forward,
        owners: Owners,
        backend: Planner,
        replayable: Replayable,
        rows: RowTable,
        *,
        tokens: int = 0,
        prompts: str = "",
    ) -> None:
        super().__init__(facet, forward, owners)
        self._backend, self._replayable = backend, replayable
        self._block_size = rows.block_size
        self._layers = list(rows.layers)
        groups, max_rows, columns = rows.block_tables.shape
        longest = rows.width - 1
        self._limits = StepShape(max_rows, max_rows, 1, longest)
        # All tokens may be padding, which is a row of its own.
        most = min(tokens, longest)
        self._mixed_limits = StepShape(most, max_rows + 1, most, longest) if most > 1 else None
        nobodys = len(rows.states[0].memory) - 1 if rows.states else None  # as `StatePlan.padding` says
        extent = (max_rows + bool(self._mixed_limits), max(max_rows, most), columns)
        self._memory = PaddedMemory(groups, *extent, rows.device, nobodys)
        self._views: list[BatchView] = []  # of the step that was planned last, one of each group
        self._steps: dict[StepShape, _FixedStep] = {}  # in the order in which they are looked at
        self._chosen: _FixedStep | None = None
        self._sizes: list[StepShape] = []
        self._fault = ""  # why nothing is captured
        self._head: Head | None = None
        self._headed: Headed | None = None  # by the first step that was captured, which is the largest
        self._prompts = prompts

    def lead_to(self, head: Head) -> None:
        """Have `head` captured behind the forward pass of steps of one token a row."""
        self._head = head

    def prepare(self) -> None:
        """Capture the steps of all sizes that the facet names, the largest first."""
        with blamed(self._owners.platform, "sizes()"):
            self._sizes = [one for one in self._facet.sizes(self._limits) if one.num_rows <= self._limits.num_rows]
        shapes = sorted([*self._sizes, *self._mixed_sizes()], key=_tokens)
        captured: dict[StepShape, _FixedStep] = {}
        try:
            for shape in reversed(shapes):
                if not (mixed(shape) and self._prompts):
                    captured |= self._captured_if_it_can_be(shape)
        except _CaptureError as error:
            self._give_up(error)
            return
        kept = [shape for shape in shapes if shape in captured and not (mixed(shape) and self._prompts)]
        self._steps = {shape: captured[shape] for shape in sorted(kept, key=mixed)}

    def planner(self, backend: Planner) -> Planner:
        """Return itself."""
        return self

    def describe(self) -> str:
        """Return one line for the start-up table: which steps run by graphs, and why others do not."""
        if self._fault:
            return f"none: {self._fault}"
        rows = [shape.num_rows for shape in self._steps if not mixed(shape)]
        tokens = [shape.num_tokens for shape in self._steps if mixed(shape)]
        singles = f"{len(rows)} captured, of up to {max(rows)} rows" if rows else "captured when first met"
        if tokens:
            return f"full: {singles}; {len(tokens)} with prompts, of up to {max(tokens)} tokens"
        return f"decode: {singles}" + (f"; prompts run without: {self._prompts}" if self._prompts else "")

    def forget(self) -> None:
        """Capture all graphs anew: they read weights that are no longer the model's."""
        self._steps.clear()
        self._headed = None
        self.prepare()

    def plan(self, batch: BatchView) -> AttentionPlan:
        """Plan a step for the layers of a group: by a graph that holds it, or as it is."""
        group = self._layers.index(batch.layers)
        self._views[group:] = [batch]
        self._chosen = self._fitting(batch)
        return self._backend.plan(batch) if self._chosen is None else self._chosen.inputs.plans[group]

    def _mixed_sizes(self) -> list[StepShape]:
        limits = self._mixed_limits
        if limits is None or self._prompts:
            return []
        with blamed(self._owners.platform, "mixed_sizes()"):
            sizes = self._facet.mixed_sizes(limits)
        return [
            one
            for one in sizes
            if mixed(one) and 1 < one.num_tokens <= limits.num_tokens and 1 < one.num_rows <= limits.num_rows
        ]

    def _fitting(self, batch: BatchView) -> _FixedStep | None:
        if self._fault:
            return None
        rows = len(batch.seq_lens)
        if batch.max_query_len == 1 and not self._sizes:
            return self._met(StepShape(rows, rows, 1, self._limits.max_seq_len))
        for shape, step in self._steps.items():
            if _holds(shape, rows, batch):
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

    def _captured_if_it_can_be(self, shape: StepShape) -> dict[StepShape, _FixedStep]:
        """Return the step of a shape; nothing, and why, of a mixed one that cannot be captured.

        Raises:
            _CaptureError: A step of one token a row cannot be captured.
        """
        try:
            return {shape: self._captured(shape)}
        except _CaptureError as error:
            if not mixed(shape):
                raise
            self._prompts = f"{self._owners.model} cannot be captured with them: {error}"
            log.warning("CORE-P240 no graphs of prompts: %s. They run operation by operation.", self._prompts)
            return {}

    def _captured(self, shape: StepShape) -> _FixedStep:
        tokens, size = shape.num_tokens, self._block_size
        self._memory.clear(shape)  # a capture may run the forward pass, any number of times
        views = [self._memory.view(shape, size, group, layers) for group, layers in enumerate(self._layers)]
        with blamed(self._owners.attention, "fixed_plan()"):
            plans = [self._replayable.fixed_plan(shape) for _ in views]
        with blamed(self._owners.attention, "refresh()"):
            self._refresh(plans, views)
        inputs = StepInputs(
            token_ids=self._memory.token_ids[:tokens],
            positions=self._memory.positions[:tokens],
            plans=plans,
            batch=views[0],
            logit_indices=self._memory.positions[:0],
            targets=self._memory.positions[:0],
            states=None if mixed(shape) else self._memory.states(shape.num_rows),
        )
        head = None if mixed(shape) or self._head is None else _SharedHead(self._head, self._headed)
        graph = self._followed(inputs, head)
        if head is not None:
            self._headed = self._headed or head.made
        return _FixedStep(shape, inputs, views, graph, None if head is None else head.made)

    def _followed(self, step: StepInputs, head: _SharedHead | None) -> Graph:
        """Capture the forward pass, and the head behind it."""
        faults: list[Exception] = []

        def watched(step: Any) -> Tensor:
            try:
                hidden = self._forward(step)
                if head is not None:
                    head(hidden)
                return hidden
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
        chosen, self._chosen, self.headed = self._chosen, None, None
        if chosen is None:
            return self._forward(step)
        self._memory.load(step, self._views, chosen.shape)
        self._refresh(chosen.inputs.plans, chosen.views)
        tokens = len(step.token_ids)
        hidden = chosen.graph.replay(chosen.inputs)[:tokens]
        self.headed = chosen.headed_of(tokens)
        return hidden


class _SharedHead:
    """A head whose results lie in the memory of those of a larger step: one step's are read before the next one runs.

    Args:
        memory: Results of the larger step; None: there is none, and results have memory of their own.

    Attributes:
        made: The results of the last call.
    """

    def __init__(self, head: Head, memory: Headed | None) -> None:
        self._head, self._memory = head, memory
        self.made: Headed | None = None

    def __call__(self, hidden: Tensor) -> None:
        found = self._head(hidden)
        if self._memory is not None and len(found[0]) <= len(self._memory[0]):
            shared = tuple(memory[: len(one)] for memory, one in zip(self._memory, found, strict=True))
            for memory, one in zip(shared, found, strict=True):
                memory.copy_(one)
            found = shared
        self.made = found


def _told(error: Exception) -> str:
    """Return what a forward pass raised, in one line."""
    return (error.message if isinstance(error, CoreError) else describe(error)).rstrip(".")


def _tokens(shape: StepShape) -> tuple[int, int, int]:
    return shape.num_tokens, shape.num_rows, shape.max_seq_len


def _holds(shape: StepShape, rows: int, batch: BatchView) -> bool:
    """Whether a step fits into a shape: tokens of padding among several of a row need a row of their own."""
    tokens = len(batch.slots)
    if batch.max_query_len > shape.max_query_len or batch.max_seq_len > shape.max_seq_len:
        return False
    if rows < shape.num_rows:
        return tokens <= shape.num_tokens
    return rows == shape.num_rows and tokens == shape.num_tokens
