"""Attention backends with the feature `replayable`: plans that stay, for graphs that were captured with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core.api.descriptors import AttentionSpec
from core.api.facets import StepShape
from core.testing.conformance.areas.attention import base_geometry
from core.testing.conformance.outcome import NotApplicable, checks, require
from core.testing.conformance.subject import Subject
from core.testing.conformance.tools.devices import largest_difference
from core.testing.conformance.tools.paged import PagedBench, Step
from core.testing.fakedevice.deferred import Deferred, Shapes

_ROWS, _LONGEST = 6, 128
_COUNTS = ((1, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1), (0, 0, 1, 0))


class _Replay:
    """Decode steps through one fixed plan, in memory that stays; rows behind those of a step are padding."""

    def __init__(self, subject: Subject) -> None:
        spec = subject.spec(AttentionSpec)
        if "replayable" not in spec.features:
            raise NotApplicable("it does not declare replayable")
        windows = (None, 7) if "sliding_window" in spec.features else (None,)
        self.bench = PagedBench(subject, replace(base_geometry(subject), windows=windows), (40, 30, 100, 9))
        self.bench.step((35, 26, 90, 5), check=False)
        self.shape = StepShape(_ROWS, _ROWS, 1, _LONGEST)
        self.batch = self._memory()
        self.plan = self.bench.backend.fixed_plan(self.shape)
        geometry = self.bench.geometry
        sizes = {"q": geometry.heads, "k": geometry.kv_heads, "v": geometry.kv_heads}
        like = self.bench.inputs(self.bench.prepare((0, 1, 0, 0)), 0, "q")
        self.bench.rows[1].done -= 1
        self.inputs = [
            {name: like.new_zeros(_ROWS, heads, geometry.head_dim) for name, heads in sizes.items()}
            for _ in self.bench.sites
        ]

    def load(self, step: Step) -> None:
        """Put a step into the memory, and refresh the plan."""
        batch, rows, width = step.batch, len(step.batch.seq_lens), step.batch.block_tables.shape[1]
        _, lengths = self.batch.on_device()
        self.batch.block_tables.zero_()
        self.batch.slots.zero_()
        lengths.fill_(1)
        self.batch.seq_lens[:] = 1
        self.batch.block_tables[:rows, :width] = batch.block_tables
        self.batch.slots[:rows] = batch.slots
        lengths[:rows] = torch.from_numpy(batch.seq_lens).to(lengths.device)
        self.batch.seq_lens[:rows] = batch.seq_lens
        for layer, tensors in enumerate(self.inputs):
            for name, tensor in tensors.items():
                tensor[:rows] = self.bench.inputs(step, layer, name)
        self.bench.backend.refresh(self.plan, self.batch)

    def forward(self) -> list[Tensor]:
        """Write and attend in every layer."""
        outputs = []
        for layer, tensors, cache in zip(self.bench.layers, self.inputs, self.bench.caches, strict=True):
            layer.write_kv(tensors["k"], tensors["v"], cache, self.plan)
            outputs.append(layer.forward(tensors["q"], cache, self.plan))
        return outputs

    def compare(self, run: Callable[[], list[Tensor]]) -> None:
        """Compare steps of several sizes with the dense reference."""
        for counts in _COUNTS:
            step = self.bench.prepare(counts)
            self.load(step)
            rows = len(step.batch.seq_lens)
            for layer, output in enumerate(run()):
                error = largest_difference(output[:rows], self.bench.reference(step, layer))
                allowed = self.bench.geometry.tolerance(self.bench.device)
                text = f"with {rows} of {_ROWS} rows in use, layer {layer}: an output is off by {error:.2g}"
                require(error <= allowed, f"{text}, allowed {allowed:g}")

    def _memory(self) -> BatchView:
        device, size = self.bench.device, self.bench.geometry.block_size
        return BatchView(
            query_starts=np.arange(_ROWS + 1, dtype=np.int32),
            seq_lens=np.ones(_ROWS, dtype=np.int32),
            block_tables=torch.zeros(_ROWS, -(-_LONGEST // size), dtype=torch.int32, device=device),
            slots=torch.zeros(_ROWS, dtype=torch.int64, device=device),
            max_query_len=1,
            max_seq_len=_LONGEST,
            twins=(
                torch.arange(_ROWS + 1, dtype=torch.int32, device=device),
                torch.ones(_ROWS, dtype=torch.int32, device=device),
            ),
        )


def refreshed_plans_match_reference(subject: Subject) -> None:
    """A fixed plan, refreshed for steps of other rows and lengths, gives what the reference gives, beside padding."""
    replay = _Replay(subject)
    replay.compare(replay.forward)


def fixed_plans_keep_no_number_of_a_step(subject: Subject) -> None:
    """Torch operations of a step, recorded once and carried out again on refreshed memory, give the later steps."""
    replay = _Replay(subject)
    if subject.device != "cpu":
        raise NotApplicable("operations of another device are captured by its own graphs")
    work: list[Callable[[], object]] = []
    replay.load(replay.bench.prepare((1, 1, 0, 0)))
    with torch.inference_mode(), Deferred(work.append, _refuse, Shapes()):
        outputs = replay.forward()

    def again() -> list[Tensor]:
        with torch.inference_mode():
            for one in work:
                one()
        return outputs

    again()
    replay.compare(again)


def refresh_reads_the_device_alone(subject: Subject) -> None:
    """`refresh` does not wait: what it needs of the device it leaves there."""
    replay = _Replay(subject)
    if subject.device != "cpu":
        raise NotApplicable("only torch operations on the host's tensors can be watched")
    with torch.inference_mode(), Deferred(lambda work: work(), _refuse, Shapes()):
        replay.bench.backend.refresh(replay.plan, replay.batch)


def _refuse() -> None:
    require(False, "the host waits for the device")


CHECKS = checks(
    refreshed_plans_match_reference,
    fixed_plans_keep_no_number_of_a_step,
    refresh_reads_the_device_alone,
    on_device=True,
)
