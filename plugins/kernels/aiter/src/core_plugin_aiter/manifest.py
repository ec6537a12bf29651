"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec, KernelSpec
from core.api.kernels import DimRule

DTYPES = frozenset({"bfloat16", "float16"})
BLOCKS = "float8_e4m3fn/128x128:float32@float8:128"
ROWS = "int8/1xall:float32@int8:token"

AITER = AttentionSpec(
    name="aiter",
    impl="core_plugin_aiter.attention:AiterAttention",
    api=2,
    summary="Paged and latent attention by AITER, for AMD Instinct",
    band=3,
    imports=("aiter",),
    # ROCm's type is `cuda`.
    devices=frozenset({"cuda"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES,
    head_dims=frozenset({64, 128, 192}),
    refine="core_plugin_aiter.fits:attention",
    features=frozenset({"sliding_window", "softcap", "sinks", "alibi", "latent", "replayable"}),
)


def _linear(name: str, path: str, form: str, summary: str, rule: DimRule) -> KernelSpec:
    return KernelSpec(
        name=name,
        impl=f"core_plugin_aiter.{path}",
        api=1,
        summary=summary,
        band=4,
        imports=("aiter",),
        op="linear",
        devices=frozenset({"cuda"}),
        dtypes=DTYPES,
        dims={"inputs": rule, "outputs": DimRule(multiple_of=16)},
        forms=(form,),
        refine="core_plugin_aiter.fits:products",
    )


LINEAR = _linear(
    "aiter_linear", "blocks:Linear", BLOCKS, "Float8 weights in blocks of 128 x 128, by AITER", DimRule(multiple_of=128)
)
INT8_LINEAR = _linear(
    "aiter_int8_linear", "rows:Linear", ROWS, "Int8 weights with a scale a row, by AITER", DimRule(multiple_of=16)
)
