"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import PlatformSpec

XPU = PlatformSpec(
    name="xpu",
    impl="core_plugin_xpu.platform:XpuPlatform",
    api=2,
    summary="Intel GPUs: Arc A and B, Data Center GPU Max and Flex, by torch's XPU build",
    band=4,
    device_type="xpu",
    probe="core_plugin_xpu.probe:probe",
    dtypes=("bfloat16", "float16", "float32"),
    block_size=16,
    step_tokens=4096,
    memory_fraction=0.9,
    options="core_plugin_accelerator.options:AcceleratorOptions",
)
