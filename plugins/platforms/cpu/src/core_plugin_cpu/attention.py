"""The attention backend `cpu_native`: cache layout, plans and layers over the native kernels."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from core.api.attention import (
    AttentionContext,
    AttentionSite,
    BatchView,
    CompressedSite,
    KVLayout,
    LatentSite,
    PickSite,
)
from core_plugin_cpu.native import attention as kernels
from core_plugin_cpu.native import encoder, entries
from core_plugin_cpu.native import latent as latents
from core_plugin_cpu.native import picks as pickers
from core_plugin_cpu.native.refine import MOST_HEAD_DIM
from core_plugin_cpu.native.verify import apart


class NativeAttentionBackend:
    """Paged attention by `libcore_cpu`. What a block holds is described in `csrc/cpu/attention/attention.h`."""

    def __init__(self, ctx: AttentionContext) -> None:
        self._ctx = ctx
        self._caches: dict[tuple[float, ...], kernels.Cache] = {}
        self._latents: dict[tuple[LatentSite, int], latents.LatentCache] = {}
        self._vectors: dict[tuple[PickSite | CompressedSite, int], pickers.VectorCache] = {}
        self._scratch: dict[tuple[int, ...], Tensor] = {}

    def kv_layout(self, site: AttentionSite) -> KVLayout:
        """Return blocks of `(2, kv_heads, block_size * head_dim)`; int8 with the tokens' scales behind them."""
        return kernels.kv_layout(site, self._ctx.block_size, self._ctx.kv_dtype)

    def plan(self, batch: BatchView) -> kernels.Batch:
        """Take the batch as it is, but for rows of a few tokens: the kernel divides the work by itself."""
        return kernels.Batch.of(apart(batch))

    def layer(self, site: AttentionSite) -> NativeAttentionLayer:
        """Return the attention of one layer. Raises `ValueError` for a geometry that the kernels do not have."""
        _check_heads(site, whole_vectors=True)
        return NativeAttentionLayer(site, self)

    def latent_layout(self, site: LatentSite) -> KVLayout:
        """Return blocks of latents, with the rotated key behind each."""
        return latents.latent_layout(site, self._ctx.block_size, self._ctx.kv_dtype)

    def latent(self, site: LatentSite) -> NativeLatentLayer:
        """Return the latent attention of one layer."""
        return NativeLatentLayer(site, self)

    def picker_layout(self, site: PickSite) -> KVLayout:
        """Return blocks of index keys."""
        return pickers.picker_layout(site, self._ctx.block_size, self._ctx.kv_dtype)

    def picker(self, site: PickSite) -> NativePicker:
        """Return what picks positions, or entries."""
        return NativePicker(site, self)

    def compressed_layout(self, site: CompressedSite) -> KVLayout:
        """Return blocks of entries. Raises `ValueError` where a block does not hold whole ones."""
        return pickers.vector_layout(site.head_dim, self._ctx.block_size, site.ratio, self._ctx.kv_dtype)

    def compressed(self, site: CompressedSite) -> NativeCompressedLayer:
        """Return the attention to the entries of one layer."""
        return NativeCompressedLayer(site, self)

    def encoder(self, site: AttentionSite) -> NativeEncoderLayer:
        """Return attention within the prompts of a step. Raises `ValueError` as `layer` does."""
        _check_heads(site, whole_vectors=False)
        return NativeEncoderLayer(site, self)

    def encoder_scratch(self, site: AttentionSite) -> Tensor:
        """Return scratch memory, which layers of one geometry share."""
        threads = torch.get_num_threads()
        key = (1, site.num_heads, site.num_kv_heads, site.head_dim, threads)
        if key not in self._scratch:
            self._scratch[key] = encoder.scratch_for(site, threads)
        return self._scratch[key]

    def _attention_scratch(self, site: AttentionSite, threads: int) -> Tensor:
        key = (0, site.num_heads, site.num_kv_heads, site.head_dim, threads)
        if key not in self._scratch:
            self._scratch[key] = kernels.scratch_for(site, self._ctx.dtype, self._ctx.block_size, threads)
        return self._scratch[key]

    def cache(self, site: AttentionSite, scales: tuple[float, float] = (1.0, 1.0)) -> kernels.Cache:
        """Return how to read the cache; layers of one geometry share scratch memory, because they run in turn."""
        threads = torch.get_num_threads()
        key = (site.num_heads, site.num_kv_heads, site.head_dim, threads, *scales)
        found = self._caches.get(key)
        if found is None:
            ctx = self._ctx
            scratch = self._attention_scratch(site, threads)
            found = kernels.Cache(site, ctx.dtype, ctx.block_size, ctx.kv_dtype, scratch, scales)
            self._caches[key] = found
        return found

    def latent_cache(self, site: LatentSite) -> latents.LatentCache:
        """Return how to read the cache of a latent layer; layers of one geometry share scratch memory."""
        threads = torch.get_num_threads()
        key = (replace(site, layer=0), threads)
        found = self._latents.get(key)
        if found is None:
            ctx, scratch = self._ctx, latents.scratch_for(site, threads)
            found = latents.LatentCache(site, ctx.dtype, ctx.block_size, ctx.kv_dtype, scratch)
            self._latents[key] = found
        return found

    def vector_cache(self, site: PickSite | CompressedSite) -> pickers.VectorCache:
        """Return how to read the cache of a picker, or of entries; those of one geometry share scratch memory."""
        threads = torch.get_num_threads()
        key = (replace(site, layer=0), threads)
        found = self._vectors.get(key)
        if found is None:
            if isinstance(site, PickSite):
                size, scratch = site.key_dim, pickers.scratch_for(site, threads)
            else:
                size, scratch = site.head_dim, entries.scratch_for(site, threads)
            ctx = self._ctx
            found = pickers.VectorCache(size, site.ratio, ctx.dtype, ctx.block_size, ctx.kv_dtype, scratch)
            self._vectors[key] = found
        return found


def _check_heads(site: AttentionSite, *, whole_vectors: bool) -> None:
    """Hold a layer of the model against what the kernels' scratch memory is made for; its shape may have said else."""
    dim, groups = site.head_dim, site.num_kv_heads > 0 and site.num_heads % site.num_kv_heads == 0
    if not groups or not 0 < dim <= MOST_HEAD_DIM or (whole_vectors and dim % 16):
        heads = f"layer {site.layer} has {site.num_heads} heads of {dim} over {site.num_kv_heads} kv heads"
        raise ValueError(f"{heads}; whole groups of heads of up to {MOST_HEAD_DIM}, a multiple of 16, expected")


class NativeAttentionLayer:
    """Attention of one layer."""

    def __init__(self, site: AttentionSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend
        self._scales = (1.0, 1.0)
        slopes = None if site.slopes is None else torch.tensor(site.slopes, dtype=torch.float32)
        self._terms = kernels.HeadTerms(slopes)

    def use_sinks(self, sinks: Tensor) -> None:
        """Let each head have a key without a value, of these scores `(heads,)`."""
        self._terms.sinks = sinks.to(torch.float32).contiguous()

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide keys and values of a float8 cache by these before they are rounded."""
        self._scales = (float(key), float(value))

    def write_kv(self, k: Tensor, v: Tensor, kv: Tensor, plan: kernels.Batch) -> None:
        """Store `k, v (tokens, kv_heads, head_dim)` at the plan's slots."""
        kernels.write_kv(k, v, kv, plan, self._backend.cache(self._site, self._scales))

    def forward(self, q: Tensor, kv: Tensor, plan: kernels.Batch) -> Tensor:
        """Attend causally; `q (tokens, heads, head_dim)` -> `(tokens, heads * head_dim)`."""
        cache = self._backend.cache(self._site, self._scales)
        return kernels.attend(q, kv, plan, self._site, cache, self._terms)


class NativeEncoderLayer:
    """Encoder attention of one layer."""

    def __init__(self, site: AttentionSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor, plan: kernels.Batch) -> Tensor:
        """Attend within each prompt; shapes as in `EncoderLayer.forward`."""
        return encoder.encode(q, k, v, plan, self._site, self._backend.encoder_scratch(self._site))


class NativeLatentLayer:
    """Multi-head latent attention of one layer."""

    def __init__(self, site: LatentSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend
        self._up: latents.UpProjection | None = None
        self._scale = 1.0

    def use_up(self, key: Tensor, value: Tensor) -> None:
        """Use `key (heads, key_dim, latent_dim)` and `value (heads, latent_dim, value_dim)` from now on."""
        self._up = latents.UpProjection.of(key, value, self._backend.latent_cache(self._site))

    def use_scales(self, key: Tensor, value: Tensor) -> None:
        """Divide what a float8 cache keeps of a token by `key` before it is rounded; `value` is the same."""
        self._scale = float(key)

    def write(self, latent: Tensor, rope_key: Tensor, kv: Tensor, plan: kernels.Batch) -> None:
        """Store `latent (tokens, latent_dim)` and `rope_key (tokens, rope_dim)` at the plan's slots."""
        latents.write_latents(latent, rope_key, kv, plan, self._backend.latent_cache(self._site), self._scale)

    def forward(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: kernels.Batch) -> Tensor:
        """Attend causally; shapes as in `LatentLayer.forward`. Raises `RuntimeError` without up-projections."""
        return latents.attend(q, q_rope, kv, plan, *self._needed(), scale=self._scale)

    def forward_picked(self, q: Tensor, q_rope: Tensor, kv: Tensor, plan: kernels.Batch, picked: Tensor) -> Tensor:
        """Attend to the positions `picked (tokens, picks)` of rows that are longer; else as `forward`."""
        return latents.attend(q, q_rope, kv, plan, *self._needed(), picked, self._scale)

    def _needed(self) -> tuple[latents.LatentCache, latents.UpProjection]:
        if self._up is None:
            raise RuntimeError(f"latent attention of layer {self._site.layer} has no up-projections yet")
        return self._backend.latent_cache(self._site), self._up


class NativePicker:
    """Chooses positions for latent layers, or entries for compressed ones."""

    def __init__(self, site: PickSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend

    def write(self, key: Tensor, kv: Tensor, plan: kernels.Batch) -> None:
        """Store index keys `key (tokens, key_dim)` at the plan's slots."""
        self._backend.vector_cache(self._site).store(key, kv, plan)

    def forward(self, q: Tensor, weights: Tensor, kv: Tensor, plan: kernels.Batch) -> Tensor | None:
        """`q (tokens, heads, key_dim)`, `weights (tokens, heads)` -> `(tokens, picks)` int32, or None for all."""
        return pickers.pick(q, weights, kv, plan, self._site, self._backend.vector_cache(self._site))


class NativeCompressedLayer:
    """Attention to the compressed entries of one layer."""

    def __init__(self, site: CompressedSite, backend: NativeAttentionBackend) -> None:
        self._site = site
        self._backend = backend

    def write(self, given: Tensor, kv: Tensor, plan: kernels.Batch) -> None:
        """Store those of the entries `(tokens, head_dim)` that are complete."""
        self._backend.vector_cache(self._site).store(given, kv, plan)

    def forward(self, q: Tensor, kv: Tensor, plan: kernels.Batch, picked: Tensor | None) -> tuple[Tensor, Tensor]:
        """`q (tokens, heads, head_dim)` -> `(tokens, heads, head_dim)`, `(tokens, heads)`, both float32."""
        return entries.attend(q, kv, plan, self._site, self._backend.vector_cache(self._site), picked)
