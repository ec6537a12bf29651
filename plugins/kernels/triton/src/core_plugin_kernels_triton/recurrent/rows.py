"""Inputs of the recurrent kernels: a step's states on the device, and the sizes of tiles."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import torch
from torch import Tensor

from core.api.states import State
from core_plugin_kernels_triton.tables import sections, sizes


@cache
def tiles(device: torch.device) -> dict[str, Mapping[str, int]]:
    """Return the table for a device: kernel -> its sizes."""
    return sizes("recurrent", sections(device))


def on_device(state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the memory of a state, and slots, freshness and starts of the rows, all on the device: no copy is made."""
    rows = state.rows
    starts = torch.from_numpy(rows.starts) if rows.twins is None else rows.twins
    return state.memory, rows.slots, rows.fresh, starts


def dense(x: Tensor) -> Tensor:
    """Return `x`, the numbers of its last dimension one behind the other."""
    return x if x.stride(-1) == 1 else x.contiguous()
