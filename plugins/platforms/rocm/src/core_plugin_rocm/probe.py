"""Asks whether this platform can be used here. Torch-free; runs in the parent at every start."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from core_plugin_accelerator import Card, Hidden, TorchBuild, absent, found, points_of, torch_build, visible

from core.api.verdict import ProbeResult
from core_plugin_rocm.sysfs import Node, SysfsError, driver, nodes

RUNTIME = "ROCR_VISIBLE_DEVICES"
HIP = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Of these the first that is set counts, among what the runtime's own variable leaves."""

INDEX = "ROCm"
"""Name of pytorch.org's index whose wheels of torch run on these devices."""

SUPPORTED = ("gfx90a", "gfx94?", "gfx950", "gfx110?", "gfx115?", "gfx120?")
_FLOAT8 = ("gfx950", "gfx120?")
_FLOAT8_FNUZ = ("gfx94?",)
_FLOAT4 = ("gfx950",)


def probe() -> ProbeResult:
    """Report the AMD cards that this process may use. Never raises."""
    try:
        return look(os.environ, torch_build())
    except Exception as error:
        return absent(f"the cards could not be asked: {type(error).__name__}: {error}")


def look(environ: Mapping[str, str], torch: TorchBuild, root: Path = Path("/")) -> ProbeResult:
    """Return what a probe reports.

    Args:
        environ: Variables.
        root: Where the file system begins.
    """
    try:
        cards = _visible([_card(node) for node in nodes(root)], environ)
    except (SysfsError, Hidden) as error:
        return absent(str(error))
    if not cards:
        return absent("the amdgpu driver finds no card that this process may use")
    if reason := torch.lacks("hip", INDEX):
        return absent(reason)
    facts = {"driver": driver(root), "torch_hip": torch.hip}
    return found(cards, facts, partial(points_of, __package__))


def card(name: str, arch: str, version: tuple[int, ...], memory: int, uuid: str = "") -> Card:
    """Return a card by the target of compilers for it."""
    features = {"rocm", "bf16"}
    kind = "float8_e4m3fnuz" if _any(arch, _FLOAT8_FNUZ) else "float8_e4m3fn"
    features |= {"fp8_e4m3", "fp8_e5m2"} if _any(arch, _FLOAT8) else set()
    features |= {"fp8_e4m3fnuz", "fp8_e5m2fnuz"} if _any(arch, _FLOAT8_FNUZ) else set()
    features |= {"fp4_e2m1"} if _any(arch, _FLOAT4) else set()
    unfit = "" if _any(arch, SUPPORTED) else f"{name} is a {arch}, and supported are {', '.join(SUPPORTED)}"
    return Card(name, arch, memory, version, uuid, frozenset(features), {"fp8_dtype": kind}, unfit)


def _card(node: Node) -> Card:
    return card(node.name, node.arch, node.version, node.memory, node.uuid)


def _visible(cards: Sequence[Card], environ: Mapping[str, str]) -> list[Card]:
    left = visible(cards, RUNTIME, environ.get(RUNTIME))
    variable = next((name for name in HIP if name in environ), HIP[0])
    return visible(left, variable, environ.get(variable))


def _any(arch: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(arch, glob) for glob in globs)
