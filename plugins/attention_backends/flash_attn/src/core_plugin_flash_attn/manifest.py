"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec

DTYPES = frozenset({"bfloat16", "float16"})

SIZES = frozenset(range(8, 257, 8))
"""Sizes of heads that the library has kernels for."""

FLASH_ATTN = AttentionSpec(
    name="flash_attn",
    impl="core_plugin_flash_attn.version2:FlashAttention2",
    api=2,
    summary="Paged attention by FlashAttention 2, for KV blocks of multiples of 256 tokens",
    band=3,
    requires=("flash-attn>=2.7,<3",),
    imports=("flash_attn",),
    devices=frozenset({"cuda"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES,
    head_dims=SIZES,
    block_multiple=256,
    refine="core_plugin_flash_attn.fits:version2",
    features=frozenset({"sliding_window", "softcap", "alibi", "bidirectional", "replayable"}),
    options="core_plugin_flash_attn.options:FlashAttentionOptions",
)

FLASH_ATTN_3 = AttentionSpec(
    name="flash_attn_3",
    impl="core_plugin_flash_attn.version3:FlashAttention3",
    api=2,
    summary="Paged attention by FlashAttention 3, for Hopper",
    band=3,
    requires=("flash-attn-3>=3.0.0b1,<4",),
    imports=("flash_attn_interface",),
    devices=frozenset({"cuda"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES,
    head_dims=SIZES,
    refine="core_plugin_flash_attn.fits:version3",
    features=frozenset({"sliding_window", "softcap", "chunked", "bidirectional", "replayable"}),
    options="core_plugin_flash_attn.options:FlashAttentionOptions",
)
