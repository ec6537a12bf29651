"""The worker half: keeps the experts of every token that the KV cache holds, and sends those that are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from core.api.participants import WorkerParticipant, WorkerSetup
from core_plugin_routed_experts.parts import PARTS, Orders, Report

if TYPE_CHECKING:
    from core.api.participants import BatchInputs, StepPlan, StepResult


class RoutedExpertsWorker(WorkerParticipant):
    """Keeps experts by slot of the KV cache: requests want those of a cached prefix too, which they never compute."""

    parts = PARTS

    def __init__(self, setup: WorkerSetup) -> None:
        super().__init__(setup)
        tap = setup.taps["experts"]
        self._values, self._block_size = tap.values, setup.block_size
        self._layers = [place.prefix for place in tap.places]
        sizes = [place.size for place in tap.places]
        kind = np.dtype(np.uint8 if max(sizes) < np.iinfo(np.uint8).max else np.uint16)
        self._none = int(np.iinfo(kind).max)
        shape = tuple(tap.values.shape[1:])
        self._known = np.zeros((len(setup.caches[0]) * setup.block_size, *shape), kind)
        # Experts of all layers are counted in one array, those of layer i from `offsets[i]` on; "none" is the last one.
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._counts = np.zeros(int(self._offsets[-1]) + 1, np.int64) if setup.options["load"] else None
        self._handles: dict[int, int] = {}  # row -> whose experts are sent
        self._new: dict[int, int] = {}
        self._load = False
        self._ran: tuple[StepPlan, BatchInputs] | None = None

    def begin(self, plan: StepPlan) -> Iterable[int] | None:
        """Take this step's orders."""
        self._ran = None
        orders: Orders | None = plan.parts.get(self.name)
        for new in plan.new_rows:
            self._handles.pop(new.row, None)
        self._new = {} if orders is None else dict(zip(orders.rows, orders.handles, strict=True))
        self._handles.update(self._new)
        self._load = orders is not None and orders.load
        for blocks in plan.loads.values():  # computed elsewhere: nobody knows by which experts
            for block in blocks:
                self._known[block * self._block_size : (block + 1) * self._block_size] = self._none
        return None

    def inputs(self, plan: StepPlan, step: BatchInputs) -> BatchInputs:
        """Remember where the step's tokens go."""
        self._ran = plan, step
        return step

    def end(self, plan: StepPlan, result: StepResult) -> None:
        """Keep the experts of the step's tokens, count them, and send what is wanted."""
        sent: list[tuple[int, int, np.ndarray]] = []
        if self._ran is not None:
            self._keep(self._ran[1])
            sent = list(self._wanted(*self._ran)) if self._handles else []
        if sent or self._load:
            result.parts[self.name] = self._report(sent)

    def _report(self, sent: Sequence[tuple[int, int, np.ndarray]]) -> Report:
        """Return what goes to the engine half: experts of tokens, and counts if they are due."""
        found = np.concatenate([self._known[:0], *(ids for _, _, ids in sent)])
        report = Report(
            handles=[handle for handle, _, _ in sent],
            starts=[start for _, start, _ in sent],
            counts=[len(ids) for _, _, ids in sent],
            ids=found.tobytes(),
            shape=(found.shape[1], found.shape[2]),
            dtype=found.dtype.name,
        )
        if self._load and self._counts is not None:
            report.load, report.layers = self._by_layer(self._counts), self._layers
        return report

    def _keep(self, step: BatchInputs) -> None:
        """Read what the layers left of a step's tokens."""
        ids = self._values[: len(step.token_ids)].cpu().numpy()
        self._known[step.batch.slots.cpu().numpy()] = np.where(ids < 0, self._none, ids)
        if self._counts is not None:
            layers = len(self._layers)
            places = np.where(ids < 0, self._offsets[-1], ids + self._offsets[:layers, None])
            self._counts += np.bincount(places.ravel(), minlength=len(self._counts))

    def _wanted(self, plan: StepPlan, step: BatchInputs) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield handle, first position and experts of the tokens that are to be sent, request by request."""
        tables, size = step.batch.block_tables, self._block_size
        for index, row in enumerate(plan.rows.tolist()):
            if row not in self._handles:
                continue
            start, end = int(plan.starts[index]), int(plan.starts[index] + plan.counts[index])
            first = 0 if row in self._new else start
            blocks, offsets = np.divmod(np.arange(first, end), size)
            yield self._handles[row], first, self._known[tables[index].cpu().numpy()[blocks] * size + offsets]

    def _by_layer(self, counts: np.ndarray) -> np.ndarray:
        """Return `(layers, most experts)`: counts of layers with fewer experts end with zeros."""
        sizes = np.diff(self._offsets)
        found = np.zeros((len(sizes), int(sizes.max())), np.int64)
        for layer, (begin, size) in enumerate(zip(self._offsets, sizes)):
            found[layer, :size] = counts[begin : begin + size]
        return found
