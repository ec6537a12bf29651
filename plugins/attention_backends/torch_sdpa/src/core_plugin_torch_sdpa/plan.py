"""Plans, prepared once per step and read in every layer: gather indices and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from core.api.attention import BatchView
from core_plugin_torch_sdpa.entries import Entries
from core_plugin_torch_sdpa.groups import EncoderGroups
from core_plugin_torch_sdpa.partition import DecodeGroup, PrefillTile, decode_groups, first_seen, prefill_tiles


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Kind of layers that share a plan; those of other kinds need others.

    Attributes:
        fused: Whether the kernel knows the plain causal square by itself, without a mask.
        alibi: Whether scores depend on the distance between query and key.
        latent: Whether a block is gathered whole, not its keys and its values.
    """

    window: int | None
    fused: bool
    chunk: int | None = None
    alibi: bool = False
    latent: bool = False

    def gathered(self, blocks: Tensor) -> Tensor:
        """Return what to gather of these blocks: all their keys, then all their values; or the blocks."""
        if self.latent:
            return blocks.flatten()
        keys = (blocks * 2).flatten()
        return torch.cat((keys, keys + 1))

    def first_seen(self, positions: np.ndarray) -> np.ndarray:
        """Return the first position that a query at each of `positions` sees."""
        return first_seen(positions, self.window, self.chunk)


@dataclass(frozen=True, slots=True)
class Decode:
    """A decode group on the device.

    Attributes:
        tokens: `(rows,)` places of the rows' tokens in the step; None when they are the whole step in order.
        gathered: `(2 * rows * blocks,)` half-blocks to gather: all keys, then all values; of latent layers `(rows *
            blocks,)` blocks.
        mask: `(rows, 1, 1, blocks * block_size)` additive, or None when nothing is padding.
        distance: Shaped as `mask`, float32, position of the key less that of the query; None unless asked for.
    """

    tokens: Tensor | None
    gathered: Tensor
    mask: Tensor | None
    rows: int
    distance: Tensor | None = None

    def width(self, block_size: int) -> int:
        """Return the positions that are gathered for each row of latent layers, padding included."""
        return len(self.gathered) // self.rows * block_size


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prefill tile on the device.

    Attributes:
        gathered: `(2 * blocks,)` half-blocks to gather: keys, then values; of latent layers `(blocks,)` blocks.
        skip, length: The tile's keys are `skip .. skip + length - 1` of the gathered positions.
        mask: `(queries, length)` additive, or None for the plain causal square.
        distance: `(queries, length)` float32, position of the key less that of the query; None unless asked for.
    """

    begin: int
    end: int
    gathered: Tensor
    skip: int
    length: int
    mask: Tensor | None
    distance: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """The work of every layer of one kind."""

    decodes: list[Decode]
    prefills: list[Prefill]


@dataclass(frozen=True, slots=True)
class SdpaPlan:
    """One step.

    Attributes:
        key_slots, value_slots: `(tokens,)` rows of the cache seen as `(num_blocks * 2 * block_size, ...)`.
        slots: `(tokens,)` rows of the cache of a latent layer seen as `(num_blocks * block_size, ...)`.
        variants: One per kind of layer that the backend has; None for kinds that the plan is not for.
        encoder: How encoder layers divide the step.
        entries: Which compressed entries the rows have.
    """

    key_slots: Tensor
    value_slots: Tensor
    slots: Tensor
    variants: list[Variant | None]
    encoder: EncoderGroups
    entries: Entries

    def of(self, kind: int) -> Variant:
        """Return the work of a kind of layers. Raises `ValueError` where the plan is not for them."""
        variant = self.variants[kind]
        if variant is None:
            raise ValueError("the plan is for layers of another cache group")
        return variant


class Planner:
    """Builds plans for one cache geometry.

    Args:
        dtype: Dtype of the queries, hence of additive masks.
    """

    def __init__(self, block_size: int, dtype: torch.dtype) -> None:
        self._block_size = block_size
        self._dtype = dtype

    def plan(self, batch: BatchView, kinds: Sequence[LayerKind | None]) -> SdpaPlan:
        """Prepare one step for layers of each kind that is not None."""
        size = self._block_size
        # Block b holds its keys at half-block 2 * b and its values right after.
        keys = batch.slots + torch.div(batch.slots, size, rounding_mode="floor") * size
        variants = [None if kind is None else self._variant(batch, kind) for kind in kinds]
        encoder, entries = EncoderGroups(batch, self._dtype), Entries(batch, size)
        return SdpaPlan(keys, keys + size, batch.slots, variants, encoder, entries)

    def _variant(self, batch: BatchView, kind: LayerKind) -> Variant:
        counts = np.diff(batch.query_starts)
        single = np.flatnonzero(counts == 1)
        groups: list[DecodeGroup] = []
        if len(single):
            groups = decode_groups(batch.seq_lens, single, kind.window, self._block_size, kind.chunk)
        decodes = [self._decode(batch, group, kind) for group in groups]
        tiles = [tile for row in np.flatnonzero(counts > 1).tolist() for tile in _tiles(batch, row, kind)]
        return Variant(decodes, [self._prefill(batch, tile, kind) for tile in tiles])

    def _decode(self, batch: BatchView, group: DecodeGroup, kind: LayerKind) -> Decode:
        table, size = batch.block_tables, self._block_size
        device, rows = table.device, len(group.rows)
        columns = group.first_blocks[:, None] + np.arange(group.num_blocks)
        # A row that is shorter than its group may point past its table: any block will do, the mask hides it.
        columns = np.minimum(columns, table.shape[1] - 1)
        picked = table[_tensor(group.rows, device)[:, None], _tensor(columns, device)].long()
        whole = rows == len(batch.seq_lens)
        tokens = None if whole else _tensor(batch.query_starts[group.rows].astype(np.int64), device)
        positions = group.first_blocks[:, None] * size + np.arange(group.num_blocks * size)
        lengths = batch.seq_lens[group.rows].astype(np.int64)[:, None]
        hidden = (positions >= lengths) | (positions < kind.first_seen(lengths - 1))
        mask = self._mask(hidden, device)[:, None, None] if hidden.any() else None
        distance = _distance(positions - (lengths - 1), device)[:, None, None] if kind.alibi else None
        return Decode(tokens, kind.gathered(picked), mask, rows, distance)

    def _prefill(self, batch: BatchView, tile: PrefillTile, kind: LayerKind) -> Prefill:
        size, device = self._block_size, batch.block_tables.device
        begin, end = tile.tokens
        first, last = tile.keys[0] // size, -(-tile.keys[1] // size)
        gathered = kind.gathered(batch.block_tables[tile.row, first:last].long())
        length = tile.keys[1] - tile.keys[0]
        mask = distance = None
        if length != end - begin or not _causal_square(kind, length):
            query = tile.first_query + np.arange(end - begin)[:, None]
            key = np.arange(*tile.keys)
            hidden = (key > query) | (key < kind.first_seen(query))
            mask = self._mask(hidden, device)
            distance = _distance(key - query, device) if kind.alibi else None
        return Prefill(begin, end, gathered, tile.keys[0] - first * size, length, mask, distance)

    def _mask(self, hidden: np.ndarray, device: torch.device) -> Tensor:
        mask = torch.zeros(hidden.shape, dtype=self._dtype, device=device)
        return mask.masked_fill_(_tensor(hidden, device), float("-inf"))


def _tiles(batch: BatchView, row: int, kind: LayerKind) -> list[PrefillTile]:
    begin, end, length = int(batch.query_starts[row]), int(batch.query_starts[row + 1]), int(batch.seq_lens[row])
    if length == end - begin and _causal_square(kind, length):
        return [PrefillTile(row, (begin, end), 0, (0, length))]
    return prefill_tiles(row, (begin, end), length, kind.window, kind.chunk)


def _causal_square(kind: LayerKind, length: int) -> bool:
    """Whether as many queries as keys need no mask: the fused kernel then skips what is hidden."""
    return kind.fused and all(limit is None or limit >= length for limit in (kind.window, kind.chunk))


def _distance(positions: np.ndarray, device: torch.device) -> Tensor:
    return _tensor(positions.astype(np.float32), device)


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
