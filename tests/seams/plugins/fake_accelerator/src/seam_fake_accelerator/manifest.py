"""The platform as data; imports no torch."""

from core.api import PlatformSpec, ProbeResult

ACCELERATOR = PlatformSpec(
    name="accelerator",
    impl="core_plugin_accelerator.stand_in:FakeAccelerator",
    api=2,
    summary="CPU tensors behind the API of a device module",
    band=1,
    priority=1,
    maturity="experimental",
    device_type="cpu",
    probe="seam_fake_accelerator.manifest:probe",
    dtypes=("float32",),
    block_size=16,
    step_tokens=64,
    memory_fraction=0.9,
    options="core_plugin_accelerator.options:AcceleratorOptions",
)


def probe() -> ProbeResult:
    """Report two devices without any feature of the host's processor."""
    each = tuple(ProbeResult(available=True, reason=f"device {index}", facts={"index": index}) for index in range(2))
    return each[0].model_copy(update={"features": frozenset({"own_memory"}), "devices": each})
