"""Sizes of the tiles of these kernels on a device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch

from core_plugin_kernels_triton.tables import sections, sizes


@cache
def tiles(device: torch.device) -> dict[str, Mapping[str, int]]:
    """Return the table for a device: kernel -> its sizes."""
    return sizes("experts", sections(device))
