"""Attention backends with the feature `replayable`: plans that stay, for graphs that were captured with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core.api.descriptors import AttentionSpec
from core.api.steps import StepShape
from core_testing.conformance.areas.attention import base_geometry
from core_testing.conformance.outcome import NotApplicable, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import largest_difference
from core_testing.conformance.tools.paged import PagedBench, Step
from core_testing.fakedevice.deferred import Deferred, Shapes

_ROWS, _TOKENS, _LONGEST = 6, 32, 128
_SINGLE = ((35, 26, 90, 5), ((1, 1, 1, 1), (1, 0, 1, 1), (1, 1, 1, 1), (0, 0, 1, 0)))
_PROMPTS = ((10, 4, 60, 1), ((5, 1, 16, 2), (1, 9, 0, 0), (1, 1, 1, 1), (17, 0, 12, 0), (0, 3, 0, 0)))
"""Tokens of each row in the cache before, and in each of the steps."""


class _Replay:
    """Steps through one fixed plan, in memory that stays; rows behind those of a step are padding.

    Args:
        prompts: Rows have any number of tokens; else one.
    """

    def __init__(self, subject: Subject, *, prompts: bool = False) -> None:
        spec, feature = subject.spec(AttentionSpec), "replayable_prompts" if prompts else "replayable"
        if feature not in spec.features:
            raise NotApplicable(f"it does not declare {feature}")
        windows = (None, 7) if "sliding_window" in spec.features else (None,)
        self.bench = PagedBench(subject, replace(base_geometry(subject), windows=windows), (40, 30, 100, 9))
        before, counts = _PROMPTS if prompts else _SINGLE
        self.counts: Sequence[Sequence[int]] = counts
        self.bench.step(before, check=False)
        self.shape = StepShape(_TOKENS, _ROWS, _TOKENS, _LONGEST) if prompts else StepShape(_ROWS, _ROWS, 1, _LONGEST)
        self.batch = self._memory()
        self.plan = self.bench.backend.fixed_plan(self.shape)
        geometry = self.bench.geometry
        sizes = {"q": geometry.heads, "k": geometry.kv_heads, "v": geometry.kv_heads}
        like = self.bench.inputs(self.bench.prepare((0, 1, 0, 0)), 0, "q")
        self.bench.rows[1].done -= 1
        self.inputs = [
            {name: like.new_zeros(self.shape.num_tokens, heads, geometry.head_dim) for name, heads in sizes.items()}
            for _ in self.bench.sites
        ]

    def load(self, step: Step) -> None:
        """Put a step into the memory, and refresh the plan."""
        batch, rows, width = step.batch, len(step.batch.seq_lens), step.batch.block_tables.shape[1]
        tokens = len(batch.slots)
        _, lengths = self.batch.on_device()
        self.batch.block_tables.zero_()
        self.batch.slots.zero_()
        self.batch.seq_lens[:] = 1
        self.batch.block_tables[:rows, :width] = batch.block_tables
        self.batch.slots[:tokens] = batch.slots
        self.batch.seq_lens[:rows] = batch.seq_lens
        self._divide(batch, rows, tokens)
        lengths.copy_(torch.from_numpy(self.batch.seq_lens))
        for layer, tensors in enumerate(self.inputs):
            for name, tensor in tensors.items():
                tensor[:tokens] = self.bench.inputs(step, layer, name)
        self.bench.backend.refresh(self.plan, self.batch)

    def _divide(self, batch: BatchView, rows: int, tokens: int) -> None:
        """Give the tokens that are left to the last row; those before it have none."""
        if self.shape.max_query_len == 1:
            return
        starts = self.batch.query_starts
        starts[: rows + 1], starts[rows + 1 : -1], starts[-1] = batch.query_starts, tokens, self.shape.num_tokens
        self.batch.seq_lens[-1] = self.shape.num_tokens - tokens
        self.batch.on_device()[0].copy_(torch.from_numpy(starts))

    def forward(self) -> list[Tensor]:
        """Write and attend in every layer."""
        outputs = []
        for layer, tensors, cache in zip(self.bench.layers, self.inputs, self.bench.caches, strict=True):
            layer.write_kv(tensors["k"], tensors["v"], cache, self.plan)
            outputs.append(layer.forward(tensors["q"], cache, self.plan))
        return outputs

    def compare(self, run: Callable[[], list[Tensor]]) -> None:
        """Compare steps of several sizes with the dense reference."""
        for counts in self.counts:
            step = self.bench.prepare(counts)
            self.load(step)
            rows, tokens = len(step.batch.seq_lens), len(step.batch.slots)
            for layer, output in enumerate(run()):
                error = largest_difference(output[:tokens], self.bench.reference(step, layer))
                allowed = self.bench.geometry.tolerance(self.bench.device)
                text = f"with {rows} of {_ROWS} rows in use, layer {layer}: an output is off by {error:.2g}"
                require(error <= allowed, f"{text}, allowed {allowed:g}")

    def _memory(self) -> BatchView:
        device, size, shape = self.bench.device, self.bench.geometry.block_size, self.shape
        starts, lengths = np.arange(_ROWS + 1, dtype=np.int32), np.ones(_ROWS, dtype=np.int32)
        if shape.max_query_len > 1:  # all is padding
            starts[:-1], starts[-1], lengths[-1] = 0, shape.num_tokens, shape.num_tokens
        return BatchView(
            query_starts=starts,
            seq_lens=lengths,
            block_tables=torch.zeros(_ROWS, -(-_LONGEST // size), dtype=torch.int32, device=device),
            slots=torch.zeros(shape.num_tokens, dtype=torch.int64, device=device),
            max_query_len=shape.max_query_len,
            max_seq_len=_LONGEST,
            twins=(torch.tensor(starts, device=device), torch.tensor(lengths, device=device)),
        )


def refreshed_plans_match_reference(subject: Subject) -> None:
    """A fixed plan, refreshed for steps of other rows and lengths, gives what the reference gives, beside padding."""
    replay = _Replay(subject)
    replay.compare(replay.forward)


def fixed_plans_keep_no_number_of_a_step(subject: Subject) -> None:
    """Torch operations of a step, recorded once and carried out again on refreshed memory, give the later steps."""
    _recorded(_Replay(subject), subject)


def refresh_reads_the_device_alone(subject: Subject) -> None:
    """`refresh` does not wait: what it needs of the device it leaves there."""
    _watched(_Replay(subject), subject)


def refreshed_prompts_match_reference(subject: Subject) -> None:
    """A fixed plan of `replayable_prompts` gives what the reference gives, however rows share the step's tokens."""
    replay = _Replay(subject, prompts=True)
    replay.compare(replay.forward)


def fixed_prompts_keep_no_number_of_a_step(subject: Subject) -> None:
    """Torch operations of a step with prompts, recorded and carried out again, give steps of other rows."""
    _recorded(_Replay(subject, prompts=True), subject)


def refresh_of_prompts_reads_the_device_alone(subject: Subject) -> None:
    """`refresh` does not wait where the host knows only how many tokens and rows there are."""
    _watched(_Replay(subject, prompts=True), subject)


def _recorded(replay: _Replay, subject: Subject) -> None:
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


def _watched(replay: _Replay, subject: Subject) -> None:
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
    refreshed_prompts_match_reference,
    fixed_prompts_keep_no_number_of_a_step,
    refresh_of_prompts_reads_the_device_alone,
    on_device=True,
)
