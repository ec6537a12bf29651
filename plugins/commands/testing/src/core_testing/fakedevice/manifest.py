"""The fake device as a platform; imports no torch."""

from __future__ import annotations

from core.api.descriptors import PlatformSpec
from core.api.verdict import ProbeResult

FAKE = PlatformSpec(
    name="fake",
    impl="core_testing.fakedevice.platform:FakePlatform",
    api=2,
    summary="CPU tensors as a device with memory of its own, for tests",
    band=1,
    priority=1,
    maturity="experimental",
    device_type="cpu",
    probe="core_testing.fakedevice.manifest:probe",
    dtypes=("float32",),
    block_size=16,
    step_tokens=64,
)


def probe() -> ProbeResult:
    """Report a device without any feature, so that kernels of the host processor are not chosen for it."""
    return ProbeResult(available=True, reason="one device that is none")
