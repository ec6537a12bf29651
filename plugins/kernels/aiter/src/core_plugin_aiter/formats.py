"""Which float8 a card multiplies: that of checkpoints or, on gfx94x, one in which the same bits are half as much."""

from __future__ import annotations

import torch
from torch import Tensor

OWN = torch.float8_e4m3fn
HALVED = torch.float8_e4m3fnuz
MOST = {OWN: 448.0, HALVED: 240.0}


def format_of(device: torch.device) -> torch.dtype:
    """Return the format of a device."""
    if device.type != "cuda":
        return OWN
    name = str(getattr(torch.cuda.get_device_properties(device), "gcnArchName", ""))
    return HALVED if name.startswith("gfx94") else OWN


def converted(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return weights `codes * scales` in a format; nothing is rounded.

    The same bits are half as much in the other format, but those of -0, which are not a number there.
    """
    if dtype == OWN:
        return codes, scales
    bits = codes.view(torch.uint8)
    return torch.where(bits == 0x80, 0, bits).view(HALVED), scales * 2
