"""Asks whether this platform can be used here. Torch-free; runs in the parent at every start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from core_plugin_accelerator import Card, Hidden, TorchBuild, absent, found, points_of, torch_build, visible

from core.api.verdict import ProbeResult
from core_plugin_cuda.nvml import Nvml, NvmlError, opened

VISIBLE = "CUDA_VISIBLE_DEVICES"
LEAST = (8, 0)
"""Oldest compute capability that is supported: the first with bfloat16."""

INDEX = "CUDA"
"""Name of pytorch.org's index whose wheels of torch run on these devices."""

_FLOATS = (((8, 0), "bf16"), ((8, 9), "fp8_e4m3"), ((8, 9), "fp8_e5m2"), ((10, 0), "fp4_e2m1"))


def environment(threads: int | None) -> dict[str, str]:
    """Have CUDA number cards by their places on the bus, as NVML does and `--platform cuda:INDEX` means them."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def probe() -> ProbeResult:
    """Report the NVIDIA cards that this process may use. Never raises."""
    try:
        return look(os.environ, torch_build())
    except Exception as error:
        return absent(f"the cards could not be asked: {type(error).__name__}: {error}")


def look(environ: Mapping[str, str], torch: TorchBuild, library: Any = None) -> ProbeResult:
    """Return what a probe reports.

    Args:
        environ: Variables.
        library: NVML as a loaded library; None loads it.
    """
    try:
        with opened(library) as nvml:
            cards = _visible(nvml, environ.get(VISIBLE))
            driver, cuda = nvml.driver(), nvml.cuda()
    except (NvmlError, Hidden) as error:
        return absent(str(error))
    if not cards:
        return absent(f"the NVIDIA driver {driver} finds no card")
    if reason := torch.lacks("cuda", INDEX) or _too_old(driver, cuda, torch):
        return absent(reason)
    facts = {"driver": driver, "driver_cuda": f"{cuda[0]}.{cuda[1]}", "torch_cuda": torch.cuda}
    return found(cards, facts, partial(points_of, __package__))


def card(name: str, capability: tuple[int, int], memory: int, uuid: str = "") -> Card:
    """Return a card by its compute capability."""
    major, minor = capability
    features = frozenset(feature for since, feature in _FLOATS if capability >= since)
    facts = {"fp8_dtype": "float8_e4m3fn"}
    arch, unfit = f"{major}.{minor}", ""
    if capability < LEAST:
        least = ".".join(map(str, LEAST))
        unfit = f"{name} has compute capability {arch}, and {least} is the oldest that is supported"
    return Card(name, arch, memory, capability, uuid, features | {"cuda"}, facts, unfit)


def _visible(nvml: Nvml, value: str | None) -> list[Card]:
    if value is not None and value.strip().startswith("MIG-"):
        return [_part(nvml, token.strip()) for token in value.split(",")[:1]]  # CUDA shows one part and no more
    return visible([_card(nvml, device) for device in nvml.devices()], VISIBLE, value)


def _card(nvml: Nvml, device: Any) -> Card:
    return card(nvml.name(device), nvml.capability(device), nvml.memory(device), nvml.uuid(device))


def _part(nvml: Nvml, uuid: str) -> Card:
    """Return a part of a card (MIG), which has memory of its own."""
    part = nvml.by_uuid(uuid)
    whole = nvml.whole(part)
    return card(f"part of {nvml.name(whole)}", nvml.capability(whole), nvml.memory(part), uuid)


def _too_old(driver: str, cuda: tuple[int, int], torch: TorchBuild) -> str:
    """Return why a driver cannot run what torch was built for: it runs every minor version of its major one."""
    if not torch.cuda or int(torch.cuda.partition(".")[0]) <= cuda[0]:
        return ""
    return (
        f"the NVIDIA driver {driver} is too old: it runs CUDA up to {cuda[0]}.{cuda[1]}, and torch {torch.version} is "
        f"built for CUDA {torch.cuda}; update the driver, or install a torch that is built for CUDA {cuda[0]}"
    )
