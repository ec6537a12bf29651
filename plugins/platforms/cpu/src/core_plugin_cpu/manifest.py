"""What this distribution offers as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec, KernelSpec, PlatformSpec, QuantSpec

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


def _quant(
    name: str,
    impl: str,
    summary: str,
    methods: frozenset[str],
    *,
    exact: bool = False,
    priority: int = 50,
    options: str | None = None,
    refine: str | None = None,
) -> QuantSpec:
    """A method whose weights are multiplied as they are stored. What rounds activations leaves float32 to others."""
    return QuantSpec(
        name=name,
        impl=f"core_plugin_cpu.{impl}",
        api=1,
        summary=summary,
        band=3,
        priority=priority,
        methods=methods,
        devices=frozenset({"cpu"}),
        dtypes=frozenset({"float32", "bfloat16"} if exact else {"bfloat16"}),
        needs=frozenset({NATIVE}),
        options=options,
        refine=None if refine is None else f"core_plugin_cpu.described:{refine}",
    )


CPU_DENSE = _quant(
    "cpu_dense",
    "dense:DenseScheme",
    "Plain or decoded weights, packed for the native products",
    frozenset({"none", "gguf"}),
    exact=True,
    options=f"{_OPTIONS}:DenseOptions",
)
CPU_GGUF = _quant(
    "cpu_gguf",
    "gguf:GGUFScheme",
    "GGUF blocks multiplied as they are stored, activations rounded to 8 to 15 bits (float32: see cpu_dense)",
    frozenset({"gguf"}),
    priority=60,  # before cpu_dense, which decodes
    options=f"{_OPTIONS}:BlockOptions",
)
CPU_AWQ = _quant(
    "cpu_awq",
    "awq:AWQScheme",
    "AWQ 4-bit weights multiplied as they are stored",
    frozenset({"awq"}),
    refine="awq",
    options=f"{_OPTIONS}:GroupOptions",
)
CPU_GPTQ = _quant(
    "cpu_gptq",
    "gptq:GPTQScheme",
    "GPTQ 4-bit weights multiplied as they are stored",
    frozenset({"gptq"}),
    refine="gptq",
    options=f"{_OPTIONS}:GroupOptions",
)
CPU_COMPRESSED_TENSORS = _quant(
    "cpu_compressed_tensors",
    "compressed:CompressedScheme",
    "compressed-tensors int8 weights, activations int8 per token or left as they are",
    frozenset({"compressed-tensors"}),
    refine="compressed",
    exact=True,  # the checkpoint itself says how activations are rounded
    options=f"{_OPTIONS}:DenseOptions",
)
INT8 = QuantSpec(
    name="int8",
    impl="core_plugin_cpu.int8:Int8Scheme",
    api=1,
    summary="Any weights rounded to 8 bits while they load, activations per token",
    band=3,
    methods=frozenset({"none", "gguf"}),
    devices=frozenset({"cpu"}),
    dtypes=frozenset({"bfloat16"}),
    needs=frozenset({NATIVE}),
    on_request=True,
    options=f"{_OPTIONS}:Int8Options",
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
