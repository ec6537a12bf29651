"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the implementation."""

from __future__ import annotations

from collections.abc import Mapping

from core.api.descriptors import AttentionSpec, KernelSpec, PlatformSpec
from core.api.kernels import DimRule

NATIVE = "cpu_native"
"""Feature that the probe reports where the native library can be loaded."""

_OPTIONS = "core_plugin_cpu.options"

CPU = PlatformSpec(
    name="cpu",
    impl="core_plugin_cpu.platform:CPUPlatform",
    api=2,
    summary="Host processor: torch threads on the physical cores, memory within the control group's limit",
    band=2,
    device_type="cpu",
    probe="core_plugin_cpu.probe:probe",
    dtypes=("bfloat16", "float32"),
    block_size=32,
    step_tokens=1024,
    environment="core_plugin_cpu.openmp:environment",
)

CPU_NATIVE = AttentionSpec(
    name="cpu_native",
    impl="core_plugin_cpu.attention:NativeAttentionBackend",
    api=2,
    summary="Paged, latent, picking and encoder attention in C++: AVX2, AVX-512, AVX-512 BF16, AMX; portable elsewhere",
    band=3,
    devices=frozenset({"cpu"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    kv_dtypes=frozenset({"float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8"}),
    block_multiple=16,
    features=frozenset(
        {"sliding_window", "softcap", "bidirectional", "alibi", "alibi_root", "sinks", "latent", "picks", "compressed"}
    ),
    refine="core_plugin_cpu.native.refine:attention",
)


def _kernel(op: str, summary: str, dims: Mapping[str, DimRule] | None = None) -> KernelSpec:
    return KernelSpec(
        name=f"cpu_{op}",
        impl=f"core_plugin_cpu.kernels:{op}",
        api=1,
        summary=summary,
        band=3,
        op=op,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({"float32", "bfloat16"}),
        dims=dims or {},
        needs=frozenset({NATIVE}),
    )


def _product(op: str, dense: bool, summary: str) -> KernelSpec:
    """A product of weights as they are stored, which may round activations, or of opened ones, which does not."""
    kind = "dense_" * dense + op
    refine = "experts" if op.startswith("experts") else "product"
    return KernelSpec(
        name=f"cpu_{kind}",
        impl=f"core_plugin_cpu.products.{_CLASSES[kind]}",
        api=1,
        summary=summary,
        band=3,
        priority=50 if dense else 60,
        op=op,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({"float32", "bfloat16"} if dense else {"bfloat16"}),
        needs=frozenset({NATIVE}),
        forms=_OPENED if dense else _STORED,
        options=None if dense else f"{_OPTIONS}:{'Lookup' if op == 'lookup' else 'Product'}Options",
        refine=None if dense else f"core_plugin_cpu.products.refine:{refine}",
    )


_INT8 = ("int8/*xall:float32@as_is", "int8/*xall:float32@int8:token")
_OPENED = ("*@as_is", _INT8[1])
_FLOAT8 = ("float8_e4m3fn/*", "float8_e5m2/*")
_E2M1 = ("e2m1/1x32:e8m0@*", "e2m1/1x16:e4m3@*")
_GGUF = ("gguf:Q[34568]_*@as_is", "gguf:Q[12]_0@as_is", "gguf:IQ4_*@as_is", "gguf:MXFP4@as_is", "gguf:NVFP4@as_is")
_GROUPS = ("int4/1x*:float32*@as_is", "int4/1x*:float32*@int8:token")
_TABLES = ("nf4/1x*:float32@as_is", "fp4/1x*:float32@as_is")
_STORED = ("plain@as_is", *_GGUF, *_GROUPS, *_FLOAT8, *_E2M1, *_TABLES, *_INT8)
_CLASSES = {
    "linear": "layers:LinearProduct",
    "lookup": "layers:LookupProduct",
    "dense_linear": "layers:PackedProduct",
    "dense_lookup": "layers:PackedProduct",
    "experts_in": "experts:ExpertsIn",
    "experts_out": "experts:ExpertsOut",
    "dense_experts_in": "experts:DenseExpertsIn",
    "dense_experts_out": "experts:DenseExpertsOut",
}

CPU_LINEAR = _product("linear", False, "Weights as they are stored, activations of float8 as they are, in C++")
CPU_LOOKUP = _product("lookup", False, "Embeddings and output projections as they are stored, in C++")
CPU_DENSE_LINEAR = _product("linear", True, "Weights opened to the compute dtype, activations as they are, in C++")
CPU_DENSE_LOOKUP = _product("lookup", True, "Embeddings and output projections in the compute dtype, in C++")
CPU_EXPERTS_IN = _product("experts_in", False, "Experts' weights as they are stored, for the rows of each, in C++")
CPU_EXPERTS_OUT = _product("experts_out", False, "The same, results weighed and summed up for each token, in C++")
CPU_DENSE_EXPERTS_IN = _product("experts_in", True, "Experts' weights opened to the compute dtype, in C++")
CPU_DENSE_EXPERTS_OUT = _product("experts_out", True, "The same, results weighed and summed up for each token, in C++")
CPU_RMS_NORM = _kernel("rms_norm", "RMS norm in C++")
CPU_ADD_RMS_NORM = _kernel("add_rms_norm", "Residual sum and RMS norm in one pass, in C++")
CPU_LAYER_NORM = _kernel("layer_norm", "Layer norm in C++")
CPU_ADD_LAYER_NORM = _kernel("add_layer_norm", "Residual sum and layer norm in one pass, in C++")
CPU_GELU = _kernel("gelu", "GELU (erf) in C++")
CPU_GELU_TANH = _kernel("gelu_tanh", "GELU (tanh) in C++")
CPU_SILU_AND_MUL = _kernel("silu_and_mul", "SwiGLU in one pass, in C++")
CPU_GELU_AND_MUL = _kernel("gelu_and_mul", "GeGLU (erf) in one pass, in C++")
CPU_GELU_TANH_AND_MUL = _kernel("gelu_tanh_and_mul", "GeGLU (tanh) in one pass, in C++")
CPU_ROTARY = _kernel("rotary", "Rotary embedding in one pass, in C++")
CPU_ROTARY_INTERLEAVED = _kernel("rotary_interleaved", "Rotary embedding of neighbours in one pass, in C++")
CPU_ROUTE = _kernel("route", "Choice of experts in one pass, in C++", dims={"experts": DimRule(most=2048)})
CPU_ADD_IDENTITIES = _kernel("add_identities", "Experts that only pass on what they get, in C++")
CPU_CAUSAL_CONV = _kernel(
    "causal_conv", "Short convolutions over tokens, in C++", dims={"width": DimRule(least=2, most=16)}
)
CPU_LINEAR_ATTENTION = _kernel(
    "linear_attention", "Gated linear attention and delta rule, in C++", dims={"key_dim": DimRule(most=256)}
)
CPU_SELECTIVE_SCAN = _kernel("selective_scan", "Mamba's scan, in C++", dims={"state_dim": DimRule(most=256)})
CPU_GATED_RECURRENCE = _kernel("gated_recurrence", "Decaying sums of channels, in C++")
CPU_ARGMAX = _kernel("argmax", "Most likely tokens in one pass, in C++")
CPU_DRAW = _kernel("draw", "Random tokens after top-k, top-p and min-p without a sort, in C++")
