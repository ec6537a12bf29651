"""AMD GPUs as devices."""

from __future__ import annotations

from core_plugin_accelerator.platform import AcceleratorPlatform


class RocmPlatform(AcceleratorPlatform):
    """One AMD GPU, which torch's ROCm build calls a `cuda` device; RCCL answers to the name of NCCL."""

    device_type = "cuda"
    backend = "nccl"
