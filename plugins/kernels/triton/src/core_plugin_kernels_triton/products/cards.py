"""What cards multiply besides 16 and 32 bits."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from core_plugin_kernels_triton.compat import INTERPRETED

_NEW_AMD = ("gfx950", "gfx120")
_AMD = ("gfx940", "gfx941", "gfx942")


class Card(NamedTuple):
    """Whether it multiplies float8, and whether that is e4m3fnuz."""

    float8: bool
    fnuz: bool = False


@cache
def card(device: torch.device) -> Card:
    """Return what a device multiplies; the interpreter does everything."""
    if INTERPRETED.value:
        return Card(float8=True)
    if device.type != "cuda":
        return Card(float8=False)
    if torch.version.hip:
        name = torch.cuda.get_device_properties(device).gcnArchName
        return Card(name.startswith((*_NEW_AMD, *_AMD)), name.startswith(_AMD))
    return Card(torch.cuda.get_device_capability(device) >= (8, 9))
