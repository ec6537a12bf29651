"""NVIDIA GPUs as devices."""

from __future__ import annotations

from core_plugin_accelerator.platform import AcceleratorPlatform


class CudaPlatform(AcceleratorPlatform):
    """One NVIDIA GPU."""

    device_type = "cuda"
    backend = "nccl"
