"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import PlatformSpec

ROCM = PlatformSpec(
    name="rocm",
    impl="core_plugin_rocm.platform:RocmPlatform",
    api=2,
    summary="AMD GPUs: Instinct MI200 and newer, Radeon RX 7000 and newer, by torch's ROCm build",
    band=4,
    # torch calls the devices of its ROCm build so, too: what a card can do says the probe, not the type.
    device_type="cuda",
    probe="core_plugin_rocm.probe:probe",
    dtypes=("bfloat16", "float16", "float32"),
    block_size=16,
    step_tokens=8192,
    memory_fraction=0.9,
    options="core_plugin_accelerator.options:AcceleratorOptions",
)
