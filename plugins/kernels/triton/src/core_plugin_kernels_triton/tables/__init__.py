"""Sizes of tiles for each card, as data: `<part>.toml` beside this module.

A table has a section `default`, and sections for cards, which replace single keys of it: by vendor (`cuda`, `hip`, `xpu`),
and by card (`cuda:9.0` is a compute capability, `hip:gfx942` a processor, `xpu:...` an architecture). `interpreter` has
small tiles, so that small tests have several.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

import torch

from core_plugin_kernels_triton.compat import INTERPRETED


def sections(device: torch.device) -> tuple[str, ...]:
    """Return the sections that hold for a device, later ones over earlier ones."""
    if INTERPRETED.value:
        return ("default", "interpreter")
    if device.type == "xpu":
        architecture = getattr(torch.xpu.get_device_properties(device), "architecture", "")
        return ("default", "xpu", f"xpu:{architecture}")
    if torch.version.hip:
        name = torch.cuda.get_device_properties(device).gcnArchName
        return ("default", "hip", f"hip:{name.partition(':')[0]}")
    major, minor = torch.cuda.get_device_capability(device)
    return ("default", "cuda", f"cuda:{major}.{minor}")


def sizes(part: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the table of a part for these sections."""
    table, found = _table(part), {}
    for name in names:
        found.update(table.get(name, {}))
    return found


@cache
def _table(part: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__name__).joinpath(f"{part}.toml").read_text())
