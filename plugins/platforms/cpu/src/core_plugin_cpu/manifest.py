"""What this distribution offers as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec, KernelSpec, PlatformSpec, QuantSpec

NATIVE = "cpu_native"
"""Feature that the probe reports where the native library can be loaded."""

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
)

CPU_NATIVE = AttentionSpec(
    name="cpu_native",
    impl="core_plugin_cpu.attention:NativeAttentionBackend",
    api=1,
    summary="Paged attention in C++ for AVX2, AVX-512, AVX-512 BF16 and AMX; portable elsewhere",
    band=3,
    devices=frozenset({"cpu"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    kv_dtypes=frozenset({"float32", "bfloat16"}),
    block_multiple=16,
    features=frozenset({"sliding_window", "softcap"}),
    refine="core_plugin_cpu.native.refine:attention",
)

CPU_DENSE = QuantSpec(
    name="cpu_dense",
    impl="core_plugin_cpu.dense:DenseScheme",
    api=1,
    summary="Plain or decoded weights, packed for the native products",
    band=3,
    methods=frozenset({"none", "gguf"}),
    devices=frozenset({"cpu"}),
    dtypes=frozenset({"float32", "bfloat16"}),
    needs=frozenset({NATIVE}),
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


CPU_RMS_NORM = _kernel("rms_norm", "RMS norm in C++")
CPU_ADD_RMS_NORM = _kernel("add_rms_norm", "Residual sum and RMS norm in one pass, in C++")
CPU_SILU_AND_MUL = _kernel("silu_and_mul", "SwiGLU in one pass, in C++")
CPU_GELU_AND_MUL = _kernel("gelu_and_mul", "GeGLU (erf) in one pass, in C++")
CPU_GELU_TANH_AND_MUL = _kernel("gelu_tanh_and_mul", "GeGLU (tanh) in one pass, in C++")
CPU_ROTARY = _kernel("rotary", "Rotary embedding in one pass, in C++")
