"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec

DTYPES = frozenset({"bfloat16", "float16"})

FLASHINFER = AttentionSpec(
    name="flashinfer",
    impl="core_plugin_flashinfer.backend:FlashInferBackend",
    api=2,
    summary="Paged and latent attention by FlashInfer: prompts, and decoding in splits of the context",
    band=3,
    requires=("flashinfer-python>=0.5.3,<0.8",),
    imports=("flashinfer",),
    devices=frozenset({"cuda"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES | {"float8_e4m3fn"},
    head_dims=frozenset({64, 128, 192, 256}),
    refine="core_plugin_flashinfer.fits:fits",
    features=frozenset({"sliding_window", "softcap", "sinks", "latent", "replayable"}),
    options="core_plugin_flashinfer.options:FlashInferOptions",
)
