"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import WeightTransferSpec

DISK = WeightTransferSpec(
    name="disk",
    impl="core_plugin_weight_disk.receiver:DiskReceiver",
    sender="core_plugin_weight_disk.sender:DiskSender",
    api=1,
    summary="Reads new weights from safetensors files that a trainer left on a shared disk",
)
