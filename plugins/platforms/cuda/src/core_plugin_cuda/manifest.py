"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import PlatformSpec

CUDA = PlatformSpec(
    name="cuda",
    impl="core_plugin_cuda.platform:CudaPlatform",
    api=2,
    summary="NVIDIA GPUs of compute capability 8.0 and newer, by torch's CUDA build",
    band=4,
    device_type="cuda",
    probe="core_plugin_cuda.probe:probe",
    dtypes=("bfloat16", "float16", "float32"),
    block_size=16,
    step_tokens=8192,
    memory_fraction=0.9,
    environment="core_plugin_cuda.probe:environment",
    options="core_plugin_accelerator.options:AcceleratorOptions",
)
