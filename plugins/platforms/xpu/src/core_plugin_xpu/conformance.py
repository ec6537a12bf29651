"""Stand-in for the device in the conformance kit, where there is none."""

from __future__ import annotations

from collections.abc import Iterator

from core_plugin_accelerator.stand_in import stand_in

from core_plugin_xpu.platform import XpuPlatform
from core_testing.conformance import StandInRuntime


def samples() -> Iterator[StandInRuntime]:
    """Yield the platform over the fake device module."""
    yield StandInRuntime("the fake device module", runtime=lambda: stand_in(XpuPlatform))
