"""Plans for captured graphs, in memory that stays, filled on the device alone.

The tokens of a step with prompts are rows of one token each: the keys of all are written before any of them attends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core_plugin_torch_sdpa.entries import FixedEntries
from core_plugin_torch_sdpa.groups import EncoderGroups
from core_plugin_torch_sdpa.plan import Decode, LayerKind, SdpaPlan, Variant

if TYPE_CHECKING:
    from core.api.steps import StepShape


@dataclass(frozen=True, slots=True)
class FixedVariant:
    """Tensors that `refresh` fills for one kind of layer.

    Attributes:
        mask: `(rows, 1, 1, columns * block_size)` additive.
        reach: `positions + window`, under a window.
        chunk: Chunk in tokens, if the layers have one.
        distance: Shaped as `mask`, float32: from the query to each key, for ALiBi.
    """

    mask: Tensor
    reach: Tensor | None
    chunk: int | None
    distance: Tensor | None


@dataclass(frozen=True, slots=True)
class Spread:
    """The tokens of a step as rows of one token each.

    Attributes:
        numbers: `(tokens,)` int32, 0 to `tokens - 1`.
        rows: `(tokens,)` int64, whose each token is.
        behind: `(rows,)` int32, length of each row in the cache less where its tokens in the step end.
        lengths: `(tokens,)` int32, of its row up to each token.
        tables: `(tokens, columns)` int32.
    """

    numbers: Tensor
    rows: Tensor
    behind: Tensor
    lengths: Tensor
    tables: Tensor

    @staticmethod
    def of(shape: StepShape, columns: int, device: torch.device) -> Spread:
        """Return memory for steps of a shape."""
        numbers = torch.arange(shape.num_tokens, dtype=torch.int32, device=device)
        behind = torch.zeros(shape.num_rows, dtype=torch.int32, device=device)
        tables = torch.zeros(shape.num_tokens, columns, dtype=torch.int32, device=device)
        return Spread(numbers, numbers.long(), behind, numbers.clone(), tables)

    def refresh(self, batch: BatchView) -> tuple[Tensor, Tensor]:
        """Return block tables and lengths, `(tokens, columns)` and `(tokens,)`, of a batch's tokens."""
        starts, lengths = batch.on_device()
        ends = starts[1:]
        torch.searchsorted(ends, self.numbers, right=True, out=self.rows)
        torch.sub(lengths, ends, out=self.behind)
        torch.index_select(self.behind, 0, self.rows, out=self.lengths)
        self.lengths.add_(self.numbers).add_(1)
        torch.index_select(batch.block_tables, 0, self.rows, out=self.tables)
        return self.tables, self.lengths


@dataclass(frozen=True, slots=True)
class FixedPlan(SdpaPlan):
    """A plan of one shape. All rows are gathered as far as the longest could reach; masks hide the rest.

    Attributes:
        spread: How tokens of steps with prompts become rows; None in steps of one token a row.
        work: How each variant's decode group is filled.
        blocks, halves: What latent layers, and all others, gather.
        positions: `(columns * block_size,)` int32.
        first: `(rows, 1)` int32, memory to work in.
        hidden, outside: `(rows, columns * block_size)` bool, memory to work in.
        entries: Filled with the rows' lengths.
    """

    spread: Spread | None
    work: list[FixedVariant]
    blocks: Tensor
    halves: Tensor
    positions: Tensor
    first: Tensor
    hidden: Tensor
    outside: Tensor
    entries: FixedEntries


class FixedPlanner:
    """Makes and fills fixed plans for one cache geometry.

    Args:
        dtype: Dtype of the queries, hence of additive masks.
    """

    def __init__(self, block_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self._block_size, self._dtype, self._device = block_size, dtype, device

    def plan(self, shape: StepShape, kinds: list[LayerKind]) -> FixedPlan:
        """Return a plan for layers of each kind, which `refresh` fills."""
        rows, columns = shape.num_tokens, -(-shape.max_seq_len // self._block_size)
        width = columns * self._block_size
        slots = torch.zeros(3, rows, dtype=torch.int64, device=self._device)
        blocks = torch.zeros(rows * columns, dtype=torch.int64, device=self._device)
        halves = torch.zeros(2 * rows * columns, dtype=torch.int64, device=self._device)
        positions = torch.arange(width, dtype=torch.int32, device=self._device)
        work = [self._variant(kind, positions, rows) for kind in kinds]
        hidden, outside = torch.zeros(2, rows, width, dtype=torch.bool, device=self._device)
        return FixedPlan(
            key_slots=slots[0],
            value_slots=slots[1],
            slots=slots[2],
            variants=[
                Variant([Decode(None, blocks if kind.latent else halves, one.mask, rows, one.distance)], [])
                for kind, one in zip(kinds, work, strict=True)
            ],
            encoder=self._no_encoder(rows, slots[0]),
            entries=FixedEntries(blocks, rows, shape.max_seq_len),
            spread=Spread.of(shape, columns, self._device) if shape.max_query_len > 1 else None,
            work=work,
            blocks=blocks,
            halves=halves,
            positions=positions,
            first=torch.zeros(rows, 1, dtype=torch.int32, device=self._device),
            hidden=hidden,
            outside=outside,
        )

    def refresh(self, plan: FixedPlan, batch: BatchView) -> None:
        """Fill a plan for this batch."""
        size = self._block_size
        torch.div(batch.slots, size, rounding_mode="floor", out=plan.key_slots)
        plan.key_slots.mul_(size).add_(batch.slots)
        torch.add(plan.key_slots, size, out=plan.value_slots)
        plan.slots.copy_(batch.slots)
        tables, lengths = batch.block_tables, batch.on_device()[1]
        if plan.spread is not None:
            tables, lengths = plan.spread.refresh(batch)
        blocks, halves = plan.blocks.view(tables.shape), plan.halves.view(2, *tables.shape)
        blocks.copy_(tables)
        torch.mul(blocks, 2, out=halves[0])
        torch.add(halves[0], 1, out=halves[1])
        lengths = lengths[:, None]
        plan.entries.refresh(lengths)
        for one in plan.work:
            torch.ge(plan.positions, lengths, out=plan.hidden)
            if one.reach is not None:
                torch.lt(one.reach, lengths, out=plan.outside)
                plan.hidden.logical_or_(plan.outside)
            if one.chunk is not None:
                torch.sub(lengths, 1, out=plan.first)
                plan.first.div_(one.chunk, rounding_mode="floor").mul_(one.chunk)
                torch.lt(plan.positions, plan.first, out=plan.outside)
                plan.hidden.logical_or_(plan.outside)
            one.mask.zero_().view(plan.hidden.shape).masked_fill_(plan.hidden, float("-inf"))
            if one.distance is not None:
                torch.sub(plan.positions, lengths, out=one.distance.view(plan.hidden.shape)).add_(1)

    def _variant(self, kind: LayerKind, positions: Tensor, rows: int) -> FixedVariant:
        """Return the memory of one kind of layer."""
        shape = (rows, 1, 1, len(positions))
        return FixedVariant(
            mask=torch.zeros(shape, dtype=self._dtype, device=self._device),
            reach=None if kind.window is None else positions + kind.window,
            chunk=kind.chunk,
            distance=torch.zeros(shape, device=self._device) if kind.alibi else None,
        )

    def _no_encoder(self, rows: int, slots: Tensor) -> EncoderGroups:
        """Return the division of a step of single tokens, which no encoder layer meets."""
        starts, lengths = np.arange(rows + 1, dtype=np.int32), np.ones(rows, dtype=np.int32)
        return EncoderGroups(BatchView(starts, lengths, slots[:, None], slots, 1, 1), self._dtype)
