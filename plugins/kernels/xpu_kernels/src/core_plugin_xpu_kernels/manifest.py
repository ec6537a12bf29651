"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionSpec

DTYPES = frozenset({"bfloat16", "float16"})

XPU_KERNELS = AttentionSpec(
    name="xpu_kernels",
    impl="core_plugin_xpu_kernels.attention:XpuAttention",
    api=2,
    summary="Paged attention by vllm-xpu-kernels, for GPUs of Intel",
    band=3,
    requires=("vllm-xpu-kernels>=0.1,<0.2",),
    imports=("vllm_xpu_kernels",),
    devices=frozenset({"xpu"}),
    dtypes=DTYPES,
    kv_dtypes=DTYPES,
    head_dims=frozenset({64, 96, 128, 192, 256}),
    block_multiple=16,
    features=frozenset({"sliding_window", "softcap", "sinks", "replayable"}),
)
