"""Number formats that cards multiply besides 16 and 32 bits."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from core_plugin_kernels_triton.compat import INTERPRETED

_NEW_AMD = ("gfx950", "gfx120")
_SCALED_AMD = "gfx950"
_SCALES = frozenset({"e8m0", "e4m3"})
_AMD = ("gfx940", "gfx941", "gfx942")


class Card(NamedTuple):
    """Number formats that a card multiplies.

    Attributes:
        float8: Whether it multiplies float8, and with `fnuz` whether that is e4m3fnuz.
        scaled: Types of scales, as forms name them, with which it multiplies float4 and float8 in runs of inputs
            (`tl.dot_scaled`).
    """

    float8: bool
    fnuz: bool = False
    scaled: frozenset[str] = frozenset()


@cache
def card(device: torch.device) -> Card:
    """Return what a device multiplies; the interpreter does everything."""
    if INTERPRETED.value:
        return Card(float8=True, scaled=_SCALES)
    if device.type != "cuda":
        return Card(float8=False)
    if torch.version.hip:
        name = torch.cuda.get_device_properties(device).gcnArchName
        scaled = frozenset({"e8m0"} if name.startswith(_SCALED_AMD) else ())
        return Card(name.startswith((*_NEW_AMD, *_AMD)), name.startswith(_AMD), scaled)
    capability = torch.cuda.get_device_capability(device)
    return Card(capability >= (8, 9), scaled=_SCALES if capability >= (10, 0) else frozenset())
