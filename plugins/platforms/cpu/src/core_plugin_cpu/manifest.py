"""What this distribution offers as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec, KernelSpec, PlatformSpec

NATIVE = "cpu_native"
"""Feature that the probe reports where the native library can be loaded."""

_OPTIONS = "core_plugin_cpu.options"

CPU = PlatformSpec(
    name="cpu",
    impl="core_plugin_cpu.platform:CPUPlatform",
    api=1,
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
    api=1,
    summary="Paged and encoder attention in C++ for AVX2, AVX-512, AVX-512 BF16 and AMX; portable elsewhere",
    band=3,
    devices=frozenset({"cpu"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    kv_dtypes=frozenset({"float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8"}),
    block_multiple=16,
    features=frozenset({"sliding_window", "softcap", "bidirectional"}),
    refine="core_plugin_cpu.native.refine:attention",
)


def _kernel(op: str, summary: str) -> KernelSpec:
    return KernelSpec(
        name=f"cpu_{op}",
        impl=f"core_plugin_cpu.kernels:{op}",
        api=1,
        summary=summary,
        band=3,
        op=op,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({"float32", "bfloat16"}),
        needs=frozenset({NATIVE}),
    )


def _product(op: str, name: str, impl: str, forms: tuple[str, ...], summary: str) -> KernelSpec:
    return KernelSpec(
        name=name,
        impl=f"core_plugin_cpu.products:{impl}",
        api=1,
        summary=summary,
        band=3,
        op=op,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({"float32", "bfloat16"}),
        needs=frozenset({NATIVE}),
        forms=forms,
    )


CPU_DENSE_LINEAR = _product(
    "linear", "cpu_dense_linear", "DenseProduct", ("*@as_is",), "Weights opened and packed, in C++"
)
CPU_DENSE_LOOKUP = _product("lookup", "cpu_dense_lookup", "DenseProduct", ("*@as_is",), "Embeddings, in C++")
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
CPU_ARGMAX = _kernel("argmax", "Most likely tokens in one pass, in C++")
CPU_DRAW = _kernel("draw", "Random tokens after top-k, top-p and min-p without a sort, in C++")
