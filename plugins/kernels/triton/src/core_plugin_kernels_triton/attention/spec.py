"""Descriptor of the attention backend; imports neither torch nor Triton."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec

DTYPES = frozenset({"float32", "bfloat16", "float16"})

TRITON = AttentionSpec(
    name="triton",
    impl="core_plugin_kernels_triton.attention.backend:TritonBackend",
    api=2,
    summary="Paged attention in Triton: prompts, and decoding in splits of the context",
    band=3,
    imports=("triton",),
    # ROCm's type is `cuda`.
    devices=frozenset({"cuda", "xpu"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES | {"float8_e4m3fn", "float8_e5m2"},
    refine="core_plugin_kernels_triton.attention.fits:fits",
    features=frozenset(
        {
            *("sliding_window", "softcap", "alibi", "alibi_root", "sinks", "chunked", "head_scales"),
            *("latent", "picks", "replayable", "replayable_prompts", "rotary"),
        }
    ),
)
