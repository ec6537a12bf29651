"""What the CPU platform declares about itself; imports neither torch nor the implementation."""

from __future__ import annotations

from core.api.descriptors import PlatformSpec

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
