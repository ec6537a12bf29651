"""A paged KV cache driven by hand: an attention backend beside a dense reference that never sees its cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from core.api.attention import (
    AttentionContext,
    AttentionPlan,
    AttentionSite,
    BatchView,
    KVLayout,
    TakesSinks,
)
from core_testing.conformance.device_samples import AttentionSample
from core_testing.conformance.outcome import require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.devices import device_of, dtype_of, largest_difference, with_twins

_TOLERANCE = {"float32": 2e-4, "bfloat16": 3e-2, "float16": 6e-3}
_NARROW_TOLERANCE = {"float8": 8e-2, "int8": 5e-2}
"""Of caches whose elements are rounded to eight bits."""

_ACCELERATED_FLOAT32 = 4e-3
"""Accelerators may multiply float32 with shortened mantissas."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """One KV group: what `AttentionRequest` says of it, and the layers' own traits."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    dtype: str = "float32"
    kv_dtype: str = "float32"
    windows: tuple[int | None, ...] = (None,)
    softcaps: tuple[float | None, ...] = (None,)
    alibi: bool = False
    rooted: bool = False
    chunk: int | None = None
    sinks: bool = False

    @property
    def latents_kept(self) -> frozenset[tuple[int, int]]:
        """Value of `AttentionRequest.latents` for this geometry."""
        return frozenset()

    def sites(self) -> list[AttentionSite]:
        """Return one layer for each pair of window and soft cap."""
        scale = self.head_dim**-0.5
        pairs = [(window, softcap) for window in self.windows for softcap in self.softcaps]
        slopes = tuple(2.0 ** -(head / 2) for head in range(self.heads)) if self.alibi else None
        return [
            replace(
                AttentionSite(index, self.heads, self.kv_heads, self.head_dim, scale, window, softcap),
                chunk=self.chunk,
                sinks=self.sinks,
                slopes=slopes,
                rooted=self.rooted,
            )
            for index, (window, softcap) in enumerate(pairs)
        ]

    def tolerance(self, device: torch.device) -> float:
        """Return the greatest error of an output whose values are about 1."""
        for narrow, allowed in _NARROW_TOLERANCE.items():
            if narrow in self.kv_dtype:
                return allowed
        if self.dtype == "float32" and device.type != "cpu":
            return _ACCELERATED_FLOAT32
        return max(_TOLERANCE.get(self.dtype, 3e-2), 0.0)


@dataclass(slots=True)
class Row:
    """A sequence.

    Attributes:
        q, k, v: Per layer, `(length, heads or kv_heads, head_dim)`: what every token will have, in the cache's dtype.
        done: Tokens that are in the cache.
    """

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    blocks: list[int] = field(default_factory=list)
    done: int = 0


@dataclass(slots=True)
class Step:
    """Work of one step, in batch order: `(row, first position, count)`."""

    work: list[tuple[int, int, int]]
    batch: BatchView


class PagedBench:
    """Sequences of random queries, keys and values, some tokens of each per step.

    Args:
        lengths: Tokens of each sequence.
        fill: What unused cache elements hold.
        tidy: Whether blocks are handed out in order; else scattered.
        stray: Whether table entries past a row's blocks point at blocks of other rows, instead of at block 0.
        feature: What the layers do besides.
    """

    def __init__(
        self,
        subject: Subject,
        geometry: Geometry,
        lengths: Sequence[int],
        *,
        fill: float = 0.0,
        tidy: bool = False,
        stray: bool = False,
        feature: AttentionSample | None = None,
    ) -> None:
        self.geometry, self.feature = geometry, feature
        self.device = device_of(subject)
        self.stray = stray
        dtype, kv_dtype = dtype_of(geometry.dtype), dtype_of(geometry.kv_dtype)
        self.backend = subject.impl()(AttentionContext(self.device, dtype, kv_dtype, geometry.block_size))
        self._make_layers()
        rng = torch.Generator().manual_seed(0)
        self.rows = [self._row(length, rng) for length in lengths]
        num_blocks = sum(-(-length // geometry.block_size) for length in lengths) + 9
        order = np.arange(1, num_blocks)
        self.free = (order if tidy else np.random.default_rng(0).permutation(order)).tolist()
        self.caches = [self._cache(layout, num_blocks, fill) for layout in self._layouts()]

    def step(self, counts: Sequence[int], *, check: bool = True) -> list[Tensor]:
        """Run `counts[i]` further tokens of row i; return each layer's output.

        Raises:
            Failed: With `check`, an output differs from the dense reference; says where.
        """
        prepared = self.prepare(counts)
        outputs = self.run(prepared)
        if check:
            for layer, output in enumerate(outputs):
                self._compare(prepared, layer, output)
        return outputs

    def prepare(self, counts: Sequence[int]) -> Step:
        """Take the next tokens of each row into a step."""
        work = [(i, self.rows[i].done, count) for i, count in enumerate(counts) if count]
        for i, start, count in work:
            row = self.rows[i]
            row.done = start + count
            while len(row.blocks) * self.geometry.block_size < row.done:
                row.blocks.append(self.free.pop(0))
        return Step(work, self._view(work))

    def run(self, step: Step) -> list[Tensor]:
        """Plan once, then write and attend in every layer."""
        plan = self.backend.plan(step.batch)
        outputs = []
        for index in range(len(self.caches)):
            outputs.append(self._attend(step, index, plan))
        return outputs

    def inputs(self, step: Step, layer: int, name: str) -> Tensor:
        """Return the step's queries, keys or values in the compute dtype, `(tokens, heads, head_dim)`."""
        parts = [getattr(self.rows[i], name)[layer][start : start + count] for i, start, count in step.work]
        return torch.cat(parts).to(self.device, dtype_of(self.geometry.dtype))

    def move_block(self, row: int, index: int) -> None:
        """Copy a row's block to a free place in every layer, spoil the old place, and point the table to the new."""
        blocks = self.rows[row].blocks
        old, new = blocks[index], self.free.pop(0)
        for cache in self.caches:
            cache[new] = cache[old]
            cache[old] = torch.zeros_like(cache[old])
        blocks[index] = new

    def reference(self, step: Step, layer: int) -> Tensor:
        """Return what the step's output should be, `(tokens, heads * head_dim)` float32 on the CPU."""
        outputs = [self._dense(self.rows[i], layer, start, count) for i, start, count in step.work]
        return torch.cat(outputs).flatten(1)

    def _make_layers(self) -> None:
        """Make the sites, and the layers that the bench compares."""
        feature = self.feature
        self.sites = self.geometry.sites()
        if feature is not None and feature.site is not None:
            self.sites = [feature.site(site) for site in self.sites]
        self.layers = [self.backend.layer(site) for site in self.sites]
        for site, layer in zip(self.sites, self.layers) if self.geometry.sinks else ():
            cast(TakesSinks, layer).use_sinks(sinks_of(site).to(self.device))
        if feature is not None and feature.prepare is not None:
            for layer in self.layers:
                feature.prepare(layer)

    def _layouts(self) -> list[KVLayout]:
        """Return the cache of each layer."""
        return [self.backend.kv_layout(site) for site in self.sites]

    def _attend(self, step: Step, layer: int, plan: AttentionPlan) -> Tensor:
        """Write what a step brings to one layer, and return what it gives."""
        q, k, v = (self.inputs(step, layer, name) for name in "qkv")
        self.layers[layer].write_kv(k, v, self.caches[layer], plan)
        return cast(Tensor, self.layers[layer].forward(q, self.caches[layer], plan))

    def _dense(self, row: Row, layer: int, start: int, count: int) -> Tensor:
        """Return what the last tokens of a row give, `(count, heads, size of a head's values)` float32."""
        site = self.sites[layer]
        if self.feature is None:
            return dense(row, layer, site, start, count)
        end = start + count
        due = self.feature.reference(row.q[layer][start:end], row.k[layer][:end], row.v[layer][:end], site)
        shape = (count, site.num_heads, site.head_dim)
        require(
            tuple(due.shape) == shape, f"the reference of '{self.feature.name}' gives {tuple(due.shape)}, not {shape}"
        )
        return due.float()

    def _compare(self, step: Step, layer: int, output: Tensor) -> None:
        expected = self.reference(step, layer)
        shape = tuple(expected.shape)
        require(tuple(output.shape) == shape, f"forward gives shape {tuple(output.shape)}, due is {shape}")
        require(output.dtype == dtype_of(self.geometry.dtype), f"forward gives {output.dtype}, due is the queries'")
        begin, allowed = 0, self.geometry.tolerance(self.device)
        for _, start, count in step.work:
            error = largest_difference(output[begin : begin + count], expected[begin : begin + count])
            begin += count
            where = f"row of {start + count} tokens, {count} of them new, layer {layer} ({self.geometry})"
            require(error <= allowed, f"{where}: an output is off by {error:.2g}, allowed {allowed:g}")

    def _row(self, length: int, rng: torch.Generator) -> Row:
        g = self.geometry

        def values(heads: int, dtype: str) -> list[Tensor]:
            made = [torch.randn(length, heads, g.head_dim, generator=rng) for _ in self.sites]
            stored = dtype_of(dtype)
            # How a cache of integers is scaled is the backend's own business.
            return [one.to(dtype_of(g.dtype)).to(stored if stored.is_floating_point else None).float() for one in made]

        return Row(values(g.heads, g.dtype), values(g.kv_heads, g.kv_dtype), values(g.kv_heads, g.kv_dtype))

    def _cache(self, layout: KVLayout, num_blocks: int, fill: float) -> Tensor:
        cache = torch.zeros((num_blocks, *layout.block_shape), dtype=layout.dtype, device=self.device)
        return cache.fill_(fill) if layout.dtype.is_floating_point else cache.fill_(1 if fill else 0)

    def _view(self, work: list[tuple[int, int, int]]) -> BatchView:
        size = self.geometry.block_size
        counts = np.array([count for _, _, count in work])
        lengths = np.array([start + count for _, start, count in work])
        width = int(-(-lengths.max() // size))
        tables = np.zeros((len(work), width), np.int32)
        slots = []
        for place, (i, start, count) in enumerate(work):
            blocks = np.array(self.rows[i].blocks)
            if self.stray:
                tables[place] = self.rows[work[(place + 1) % len(work)][0]].blocks[0]
            used = -(-(start + count) // size)
            tables[place, :used] = blocks[:used]
            positions = np.arange(start, start + count)
            slots.append(blocks[positions // size] * size + positions % size)
        batch = BatchView(
            query_starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            seq_lens=lengths.astype(np.int32),
            block_tables=torch.from_numpy(tables).to(self.device),
            slots=torch.from_numpy(np.concatenate(slots).astype(np.int64)).to(self.device),
            max_query_len=int(counts.max()),
            max_seq_len=int(lengths.max()),
        )
        return with_twins(batch, self.device)


def sinks_of(site: AttentionSite) -> Tensor:
    """Return sinks of a layer, `(heads,)`: some small, some that take most of the softmax."""
    return torch.linspace(-2.0, 4.0, site.num_heads)


def dense(row: Row, layer: int, site: AttentionSite, start: int, count: int) -> Tensor:
    """Attend by definition in float32: `(count, heads, head_dim)` for the tokens from `start` on."""
    length, group = start + count, site.num_heads // site.num_kv_heads
    q = row.q[layer][start:length]
    k, v = (part[layer][:length].repeat_interleave(group, dim=1) for part in (row.k, row.v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * site.scale
    if site.softcap is not None:
        scores = site.softcap * torch.tanh(scores / site.softcap)
    query, key = torch.arange(start, length)[:, None], torch.arange(length)[None, :]
    if site.slopes is not None:
        away = (key - query).float()
        away = -(-away).clamp(min=0).sqrt() if site.rooted else away
        scores = scores + torch.tensor(site.slopes).view(-1, 1, 1) * away
    hidden = key > query
    if site.window is not None:
        hidden |= key <= query - site.window
    if site.chunk is not None:
        hidden |= key < query // site.chunk * site.chunk
    scores = scores.masked_fill(hidden, -torch.inf)
    if site.sinks:
        scores = torch.cat((scores, sinks_of(site)[:, None, None].expand(-1, len(scores[0]), 1)), -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :length], v)
