"""Intel GPUs as devices."""

from __future__ import annotations

from core_plugin_accelerator.platform import AcceleratorPlatform

from core_plugin_xpu.devices import is_client

CLIENT_RESERVE = 128 * 2**20
"""Bytes that the driver takes of a client card beside what torch counts."""


class XpuPlatform(AcceleratorPlatform):
    """One Intel GPU."""

    device_type = "xpu"
    backend = "xccl"

    def _reserve(self, name: str) -> int:
        """Return the bytes that are left to the driver of a card of this name."""
        return CLIENT_RESERVE if is_client(name) else 0
