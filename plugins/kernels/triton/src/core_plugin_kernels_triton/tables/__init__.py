"""Sizes of tiles for each card, as data: `<part>.toml` beside this module.

A table has a section `default`, and sections for cards, which replace single keys of it: by vendor (`cuda`, `hip`,
`xpu`), and by card (`cuda:9.0` is a compute capability, `hip:gfx942` a processor, `xpu:...` an architecture).
`interpreter` has what tests need: an operation of the interpreter costs the same whatever its size.

`core bench tune` writes what it finds on a card into a table of the user, `$XDG_CACHE_HOME/core/triton/<part>.toml`,
whose keys replace those of the shipped one, section by section.
"""

from __future__ import annotations

import logging
import os
import tomllib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from core_plugin_kernels_triton.compat import INTERPRETED

log = logging.getLogger(__name__)


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
    table = tomllib.loads(resources.files(__name__).joinpath(f"{part}.toml").read_text())
    if not INTERPRETED.value:  # the interpreter's tiles are for tests, which no file of this machine may change
        for name, section in user_table(part).items():
            table.setdefault(name, {}).update(section)
    return table


def user_path(part: str) -> Path:
    """Return the file of the user's table of a part."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "core" / "triton" / f"{part}.toml"


def user_table(part: str) -> dict[str, dict[str, Any]]:
    """Return the user's table of a part; one that is no table is passed over, with a warning."""
    path = user_path(part)
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning(
            "Sizes of tiles: %s cannot be read (%s) and is passed over; `core bench tune` writes it anew.", path, error
        )
        return {}
    return {name: section for name, section in found.items() if isinstance(section, dict)}
