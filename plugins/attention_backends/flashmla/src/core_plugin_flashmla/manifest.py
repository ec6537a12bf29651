"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec

DTYPES = frozenset({"bfloat16", "float16"})

PAGE = 64
"""Tokens of a KV block: the library's pages are of this size alone."""

FLASHMLA = AttentionSpec(
    name="flashmla",
    impl="core_plugin_flashmla.backend:FlashMlaBackend",
    api=2,
    summary="Latent attention by FlashMLA, for Hopper and KV blocks of 64 tokens",
    band=3,
    requires=("flash-mla>=1.0,<2",),
    imports=("flash_mla",),
    devices=frozenset({"cuda"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES,
    block_multiple=PAGE,
    refine="core_plugin_flashmla.fits:fits",
    features=frozenset({"latent", "replayable"}),
)
