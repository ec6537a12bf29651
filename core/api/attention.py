"""Attention backends: paged KV layout, one plan per step, one object per layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import torch
    from torch import Tensor

    from core.api.kvspecs import KVSpec
    from core.api.steps import StepShape


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """Context that an attention backend is constructed with.

    Attributes:
        device: Where the cache and the queries live.
        dtype: Dtype of queries and outputs.
        kv_dtype: Dtype that keys and values are rounded to. For int8 and float8 the backend decides how blocks store
            them, scales included.
        block_size: Tokens per KV block.
        options: The plugin's own options.
    """

    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype
    block_size: int
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttentionSite:
    """One attention layer: its KV layer index and geometry.

    Attributes:
        layer: Index of its KV cache, from 0; the layer's number for encoder layers, which have no cache.
        num_heads, num_kv_heads: Heads of the queries, and of keys and values.
        head_dim: Size of a head.
        scale: Factor of the scores, before soft cap and softmax.
        window: Sliding window in tokens, as in `LayerBuilder.attention`; None for none.
        softcap: Scores become `softcap * tanh(score / softcap)`; None for none.
        bias: What is added to the scores, as in `LayerBuilder.encoder_attention`; None for nothing.
        sinks: Whether each head has a sink, as in `LayerBuilder.attention`; its layer is a `TakesSinks`.
        chunk: Chunk in tokens, as in `LayerBuilder.attention`; None for none.
        value_dim: Size of a head of the values; None: `head_dim`.
        slopes: ALiBi: factor of each head for the distance that is added to its scores, as in
            `LayerBuilder.attention`; None for none.
        rooted: The distance counts by its square root.
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    bias: Callable[[int, torch.device], Tensor] | None = None
    sinks: bool = False
    chunk: int | None = None
    value_dim: int | None = None
    slopes: tuple[float, ...] | None = None
    rooted: bool = False


@dataclass(frozen=True, slots=True)
class LatentSite:
    """One layer of multi-head latent attention: its KV layer index and geometry.

    A token keeps one latent and one rotated key, which all heads share. The key of a head is `up_key @ latent` with the
    rotated key behind it, its value `latent @ up_value`.

    Attributes:
        layer: Index of its KV cache, from 0.
        num_heads: Heads of the queries; of this rank.
        latent_dim: Size of the latent.
        rope_dim: Size of the rotated key, and of the rotated part of a query.
        key_dim: Size of the part of a query, and of a head's key, that is not rotated.
        value_dim: Size of a head of the values.
        scale: Factor of the scores.
        picks: Most positions that a query sees, chosen by a `Picker`; None: it sees all. With `picks` its layer is a
            `TakesPicks`.
    """

    layer: int
    num_heads: int
    latent_dim: int
    rope_dim: int
    key_dim: int
    value_dim: int
    scale: float
    picks: int | None = None


@dataclass(frozen=True, slots=True)
class PickSite:
    """The position picker of latent layers, which chooses what queries see: its KV layer index and geometry.

    A token keeps one index key. The score of a position is the sum over the index heads of `weight * relu(scale * q @
    key)`, and a query sees the positions with the best scores.

    Attributes:
        layer: Index of its KV cache, which is of its own: behind those of all attention layers.
        num_heads: Index heads; every rank has all of them.
        key_dim: Size of an index key, and of a head of the index queries.
        scale: Positive factor of the products.
        picks: Most positions that a query sees.
        ratio: Tokens that one index key stands for, as in `CompressedSite`: what is picked are then entries of a
            `CompressedLayer`, by their numbers in the row, and only the key of the last of so many tokens is kept.
    """

    layer: int
    num_heads: int
    key_dim: int
    scale: float
    picks: int
    ratio: int = 1


@dataclass(frozen=True, slots=True)
class CompressedSite:
    """Attention to compressed entries: its KV layer index and geometry.

    `ratio` tokens of a row, from a multiple of `ratio` on, have one entry, which is key and value of all heads. It is
    written with the last of these tokens, and seen from there on: a query at position p sees the first `(p + 1) //
    ratio` entries of its row. A block of the cache has those of its own tokens, so `ratio` divides the block size.

    Attributes:
        layer: Index of its KV cache, from 0.
        num_heads: Heads of the queries; of this rank.
        head_dim: Size of an entry, and of a query's head.
        scale: Factor of the scores.
        ratio: Tokens that one entry stands for.
        picks: Most entries that a query sees, chosen by a `Picker` of the same `ratio`; None: it sees all that there
            are.
    """

    layer: int
    num_heads: int
    head_dim: int
    scale: float
    ratio: int
    picks: int | None = None


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The cache tensor of one layer.

    Attributes:
        block_shape: Shape of one block; the cache is `(num_blocks, *block_shape)`, so that block `b` of any
            backend is `cache[b]`: connectors copy blocks without knowing what is inside.
        dtype: Element type of the tensor; for a cache of scaled or of 8-bit values simply bytes.
    """

    block_shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes_per_block(self) -> int:
        """Bytes that one block of one layer takes."""
        size = self.dtype.itemsize
        for dim in self.block_shape:
            size *= dim
        return size


@dataclass(frozen=True, slots=True)
class BatchView:
    """One step's batch as attention sees it. Rows are scheduled requests, in batch order.

    Layers that keep different pasts may have block tables of their own: a step then has one view for each of these
    cache groups, which differ in `block_tables`, `slots` and `layers` alone.

    Attributes:
        query_starts: `(rows + 1,)` int32 numpy, offsets of each row's tokens in the step.
        seq_lens: `(rows,)` int32 numpy, tokens in the cache after this step's writes.
        block_tables: `(rows, max_blocks)` int32 on the device; entries past a row's blocks are 0, and so are those
            before them that no layer of the view reads any more. The tables of all views have the same strides.
        slots: `(tokens,)` int64 on the device: `block * block_size + offset` where each token's k, v go.
        max_query_len, max_seq_len: Maxima over the rows.
        layers: The KV layers (`AttentionSite.layer`) that the view is for; None: all of them.
        twins: `query_starts` and `seq_lens` on the device, int32; None where it shares the host's memory. To be read
            by `on_device`.
    """

    query_starts: np.ndarray
    seq_lens: np.ndarray
    block_tables: Tensor
    slots: Tensor
    max_query_len: int
    max_seq_len: int
    layers: frozenset[int] | None = None
    twins: tuple[Tensor, Tensor] | None = None

    def on_device(self) -> tuple[Tensor, Tensor]:
        """Return `query_starts` and `seq_lens` on the device, int32: no copy is made."""
        if self.twins is not None:
            return self.twins
        as_tensor = import_module("torch").from_numpy  # it is loaded where there are steps; this module does without
        return as_tensor(self.query_starts), as_tensor(self.seq_lens)


@dataclass(frozen=True, slots=True)
class Rotation:
    """By what the queries and keys of a step are rotated.

    Attributes:
        positions: `(tokens,)` int64 on the device, rows of the table.
        table: What `core.ops.rotary_table` returns, `(positions, 2 * rotary_dim)` in the compute dtype: cosines, then
            sines whose first half is negated.
        interleaved: Dimensions 2i and 2i + 1 form a pair, not i and i + `rotary_dim` / 2.
    """

    positions: Tensor
    table: Tensor
    interleaved: bool


class AttentionPlan(Protocol):
    """Whatever a backend prepares once per step and reads in every layer. Opaque to core."""


class AttentionLayer(Protocol):
    """Attention of one layer. Core has compared `q`, `k` and `v` with the site, the step and the compute dtype."""

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots of this layer's cache."""
        ...

    def forward(self, q: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        ...


class EncoderLayer(Protocol):
    """Attention of one layer within the prompts of a step, without a cache."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, plan: AttentionPlan) -> Tensor:
        """Attend to every token of the same row, before and behind.

        Shapes: `q (tokens, heads, head_dim)`, `k, v (tokens, kv_heads, head_dim)` -> `(tokens, heads * head_dim)`.
        """
        ...


class Encodes(Protocol):
    """Optional part of an attention backend whose descriptor has the feature `bidirectional`.

    Every row of a step with encoder layers is a whole prompt.
    """

    def encoder(self, site: AttentionSite) -> EncoderLayer:
        """Return the attention of one layer; `site.window` counts both sides, as in `encoder_attention`.

        `site.bias` comes only from models whose shape has the feature `position_bias`.
        """
        ...


class LatentLayer(Protocol):
    """Latent attention of one layer. Core has compared its arguments with the site, the step and the compute dtype."""

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use these up-projections from now on; called whenever weights were loaded.

        Args:
            key: `(heads, key_dim, latent_dim)` in the compute dtype.
            value: `(heads, latent_dim, value_dim)` in the compute dtype.
        """
        ...

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the plan's slots of the cache."""
        ...

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor:
        """Attend causally.

        Shapes: `q (tokens, heads, key_dim)`, `q_rope (tokens, heads, rope_dim)` -> `(tokens, heads * value_dim)`.
        """
        ...


class Latent(Protocol):
    """Optional part of an attention backend whose descriptor has the feature `latent`.

    One plan of `plan` serves its layers beside those of `layer`.
    """

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return the shape and dtype of one layer's cache, which holds `latent_dim + rope_dim` numbers a token."""
        ...

    def latent(self, site: LatentSite) -> LatentLayer:
        """Return the latent attention of one layer; asked once per layer while the model is built."""
        ...


class Picker(Protocol):
    """Chooses the positions that queries see. Core has compared its arguments with the site and the step."""

    def write(self, key: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store index keys `key (tokens, key_dim)`, in the compute dtype, at the plan's slots of its own cache.

        With a `ratio`, as `CompressedLayer.write` stores entries.
        """
        ...

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: AttentionPlan) -> Tensor | None:
        """Return the positions that each query sees; None may say that it sees all, of rows no longer than `picks`.

        Shapes: `q (tokens, heads, key_dim)` in the compute dtype, `weights (tokens, heads)` float32 -> `(tokens,
        picks)` int32: positions in the query's row up to its own, each once, in any order, and -1 in what is left of a
        query that sees fewer than `picks`. Scores are float32; which of several equal ones is taken is not said.
        With a `ratio`, numbers of entries take the place of positions, and None may be for rows of no more than `picks`
        entries.
        """
        ...


class Picks(Protocol):
    """Optional part of an attention backend whose descriptor has the features `latent` and `picks`, or `compressed`.

    One plan of `plan` serves its pickers beside its layers.
    """

    def picker_layout(self, site: PickSite) -> KVLayout:
        """Return the shape and dtype of a cache of index keys: `key_dim` numbers for each `ratio` tokens."""
        ...

    def picker(self, site: PickSite) -> Picker:
        """Return a picker; asked once for each while the model is built."""
        ...


class TakesPicks(Protocol):
    """Part of every latent layer of a backend whose descriptor has the feature `picks`, for sites with `picks`."""

    def forward_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: AttentionPlan, picked: Tensor) -> Tensor:
        """Attend to the positions that a `Picker` of the step returned; else as `LatentLayer.forward`.

        `picked (tokens, picks)` int32 has every position of a row that is no longer than `picks`. Where the picker
        returned None core calls `forward`.
        """
        ...


class CompressedLayer(Protocol):
    """Attention to compressed entries. Core has compared its arguments with the site, the step and the compute dtype.

    It is a part of attention: what queries see besides, a window or a sink, is computed elsewhere, and put together by
    the logarithms of the sums.
    """

    def write(self, entries: Tensor, kv: Tensor, plan: AttentionPlan) -> None:
        """Store the entries of tokens at positions p with `(p + 1) % ratio == 0`, at slot `slot // ratio` of the cache.

        Args:
            entries: `(tokens, head_dim)` in the compute dtype; those of other tokens are to be left out.
        """
        ...

    def forward(self, q: Tensor, kv: Tensor, plan: AttentionPlan, picked: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attend to the entries that each query sees.

        Args:
            q: `(tokens, heads, head_dim)` in the compute dtype.
            picked: What a `Picker` of the step returned, `(tokens, picks)` int32 with -1 for none; None: every entry
                that there is.

        Returns:
            `(tokens, heads, head_dim)` float32, the mean of the entries by the softmax of their scores, and `(tokens,
            heads)` float32, the logarithm of the sum of `exp(score)`. Of a query that sees none: zeros, and -inf.
        """
        ...


class Compressed(Protocol):
    """Optional part of an attention backend whose descriptor has the feature `compressed`.

    It is a `Picks` too, whose pickers take a `ratio`.
    One plan of `plan` serves its layers beside the others.
    """

    def compressed_layout(self, site: CompressedSite) -> KVLayout:
        """Return the shape and dtype of a cache of entries: `head_dim` numbers for each `ratio` tokens."""
        ...

    def compressed(self, site: CompressedSite) -> CompressedLayer:
        """Return the attention to entries of one layer; asked once per layer while the model is built."""
        ...


class AfterLoad(Protocol):
    """Optional part of an attention layer (or a model): a step after weights are in place."""

    def after_load(self) -> None:
        """All weights were loaded or replaced; nothing has run with them yet. Must be repeatable."""
        ...


class TakesScales(Protocol):
    """Optional part of an attention layer or a latent one: scales that a checkpoint gives for a float8 cache.

    Without it a checkpoint that has any is refused for such a cache.
    """

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide keys and values by these before they are rounded, and multiply what is read.

        Called before `after_load` whenever weights were loaded; both are 1 for caches of other dtypes. A latent layer
        gets one number twice, for latents and rotated keys: its values are read from the bytes of its keys.

        Args:
            key, value: `()` float32 on the host; `(num_kv_heads,)`, if the heads differ, of a backend whose descriptor
                has the feature `head_scales`.
        """
        ...


class TakesSinks(Protocol):
    """Part of every attention layer of a backend whose descriptor has the feature `sinks`."""

    def use_sinks(self, sinks: Tensor) -> None:
        """Count `sinks (num_heads,)` float32 in the softmax of each query: scores of a key without a value.

        Called before `after_load` whenever weights were loaded, for sites with `sinks`.
        """
        ...


class StoresRotated(Protocol):
    """Part of every attention layer of a backend whose descriptor has the feature `rotary`.

    It rotates while it stores, where the model hands core's attention the rotary embedding: nothing else rotates then,
    unless the user names kernels for that.
    """

    def write_rotated(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, kv: Tensor, plan: AttentionPlan
    ) -> Tensor:
        """Rotate queries and keys; store the keys, and `v`, as `write_kv` does, and return the queries.

        Their first `rotary_dim` dimensions are rotated, as `core.ops.rotary` or `rotary_interleaved` does. The result
        is `(tokens, heads, head_dim)` in the dtype of `q`, in memory of its own.
        """
        ...


class ReportsKV(Protocol):
    """Optional part of an attention backend: what a layer keeps of the past.

    Without it a layer with a chunk is `chunked`, one with a window `sliding`, any other `full`. Layers with equal specs
    share block tables.
    """

    def kv_spec(self, site: AttentionSite) -> KVSpec:
        """Return the spec of one layer; its kind is `full`, `sliding`, `chunked`, or of `AttentionSpec.kv_managers`."""
        ...


class Replayable(Protocol):
    """Optional part of an attention backend whose descriptor has the feature `replayable`: plans for captured graphs.

    A plan of `fixed_plan` lives as long as a graph does. Whatever its layers read on the device stays where it is, and
    whatever they take from the plan on the host is the same in every step of the shape.
    """

    def fixed_plan(self, shape: StepShape) -> AttentionPlan:
        """Return a plan for steps of `shape.num_rows` rows of one token and at most `shape.max_seq_len` in the cache.

        With a `shape.max_query_len` of more than 1, of which only backends with the feature `replayable_prompts` are
        asked: for steps of `shape.num_tokens` tokens, of which a row has none or up to `max_query_len`. How they are
        divided among the rows differs from step to step, and is known on the device alone.

        Asked after all layers were made, and never while a graph is captured.
        """
        ...

    def refresh(self, plan: AttentionPlan, batch: BatchView) -> None:
        """Make `plan` the plan of this batch, which has exactly its shape: no allocation, no wait for the device.

        What it needs on the device it reads there (`block_tables`, `slots`, `on_device`); padded rows have one token at
        block 0, slot 0. `block_tables` is as wide as the longest row of the shape. With `replayable_prompts` the last
        row of a shape of prompts has all tokens of padding, at slot 0 of a table of zeros, and rows before it may have
        none.
        """
        ...


class AttentionBackend(Protocol):
    """Runtime of an `AttentionSpec`. May also be a `ReportsKV`; its layers may be `AfterLoad` and `TakesScales`.

    With the feature `bidirectional` it is an `Encodes`, with `latent` a `Latent`, with `picks` also a `Picks`, with
    `compressed` a `Compressed` and a `Picks`, with `replayable` a `Replayable`
    (with `replayable_prompts` of steps with prompts as well).
    """

    def __init__(self, ctx: AttentionContext) -> None: ...

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return the shape and dtype of one layer's cache; core allocates it. Layers of several groups share caches."""
        ...

    def plan(self, batch: BatchView) -> AttentionPlan:
        """Prepare a step for the layers of `batch`, once for each cache group; they get the result as `plan`."""
        ...

    def layer(self, site: AttentionSite) -> AttentionLayer:
        """Return the attention of one layer; asked once per layer while the model is built."""
        ...
