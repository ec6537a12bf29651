"""Asks whether this platform can be used here. Torch-free; runs in the parent at every start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from core_plugin_accelerator import Card, Fact, TorchBuild, absent, found, points_of, torch_build

from core.api.verdict import ProbeResult
from core_plugin_xpu.devices import family_of, is_client
from core_plugin_xpu.level_zero import Device, LevelZeroError, devices

VISIBLE = ("ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR")
VENDOR = "0x8086"
INDEX = "XPU"
"""Name of pytorch.org's index whose wheels of torch run on these devices."""


def probe() -> ProbeResult:
    """Report the Intel cards that this process may use. Never raises."""
    try:
        return look(os.environ, torch_build())
    except Exception as error:
        return absent(f"the cards could not be asked: {type(error).__name__}: {error}")


def look(environ: Mapping[str, str], torch: TorchBuild, library: Any = None, root: Path = Path("/")) -> ProbeResult:
    """Return what a probe reports.

    Args:
        environ: Variables.
        library: The loader of Level Zero as a loaded library; None loads it.
        root: Where the file system begins.
    """
    masks = " and ".join(f"{name}={environ[name]!r}" for name in VISIBLE if name in environ)
    hidden = f"; {masks} may hide it" if masks else ""
    try:
        seen = devices(library)
    except LevelZeroError as error:
        there = "an Intel GPU is on the bus, but " if _on_the_bus(root) else ""
        return absent(f"{there}{error}{hidden}")
    if not seen:
        return absent(f"Level Zero finds no GPU{f': {masks} hides every one' if masks else ''}")
    if reason := torch.lacks("xpu", INDEX):
        return absent(reason)
    cards = [_card(device) for device in seen]
    return found(cards, {"driver": seen[0].driver, "torch_xpu": torch.xpu}, partial(points_of, __package__))


def card(name: str, pci_id: int, memory: int, *, integrated: bool = False) -> Card:
    """Return a card by its PCI device id."""
    family = family_of(pci_id)
    facts: dict[str, Fact] = {"fp8_dtype": "float8_e4m3fn", "client": is_client(name), "integrated": integrated}
    if family is None:
        unfit = f"{name} (PCI device 0x{pci_id:04x}) is of no architecture that torch runs on"
        return Card(name, "unknown", memory, facts=facts, unfit=unfit)
    return Card(name, family.arch, memory, family.version, "", frozenset({"xpu", "bf16"}), facts)


def _card(device: Device) -> Card:
    return card(device.name, device.pci_id, device.memory, integrated=device.integrated)


def _on_the_bus(root: Path) -> bool:
    for file in root.glob("sys/class/drm/card*/device/vendor"):
        try:
            if file.read_text(encoding="utf-8").strip() == VENDOR:
                return True
        except OSError:
            continue
    return False
