"""AMD cards as the kernel driver's files describe them. No library is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
DEVICE = "dev/kfd"
_VIDEO_MEMORY = {"1", "2"}
"""Types of heaps that are the card's own memory, seen by the host or not."""


class SysfsError(Exception):
    """The driver's files do not tell what they must; the message says why."""


class Node:
    """A card among the nodes of the driver's topology.

    Attributes:
        properties: `name value` lines of its file.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder, self._root = folder, root
        self.properties = _pairs(folder / "properties")

    @property
    def arch(self) -> str:
        """The target of compilers: `gfx942`. Raises `SysfsError` if the driver does not tell it."""
        version = int(self.properties.get("gfx_target_version", "0"))
        if not version:
            raise SysfsError("the amdgpu driver is too old: it does not tell the gfx target of its cards")
        major, minor, step = version // 10000, version // 100 % 100, version % 100
        return f"gfx{major}{minor:x}{step:x}"

    @property
    def version(self) -> tuple[int, int, int]:
        """The target as numbers: (9, 4, 2)."""
        version = int(self.properties.get("gfx_target_version", "0"))
        return version // 10000, version // 100 % 100, version % 100

    @property
    def uuid(self) -> str:
        """Id by which `ROCR_VISIBLE_DEVICES` may name it; empty for a card without a number of its own."""
        number = int(self.properties.get("unique_id", "0"))
        return f"GPU-{number:016x}" if number else ""

    @property
    def memory(self) -> int:
        """Bytes of its own memory."""
        banks = [_pairs(bank / "properties") for bank in sorted((self._folder / "mem_banks").glob("*"))]
        own = [bank for bank in banks if bank.get("heap_type") in _VIDEO_MEMORY]
        return sum(int(bank.get("size_in_bytes", "0")) for bank in own)

    @property
    def name(self) -> str:
        """Product name of its maker; the target where the card does not say."""
        minor = self.properties.get("drm_render_minor", "")
        product = self._root / "sys/class/drm" / f"renderD{minor}" / "device/product_name"
        return _text(product) or f"AMD {self.arch}"


def nodes(root: Path) -> list[Node]:
    """Return the cards that this process may use, in the driver's order.

    Args:
        root: Where the file system begins.

    Raises:
        SysfsError: There is no driver, or this user may not use it.
    """
    topology, device = root / TOPOLOGY, root / DEVICE
    if not topology.is_dir():
        raise SysfsError(f"no amdgpu driver: /{TOPOLOGY} is absent")
    if not device.exists():
        raise SysfsError(f"/{DEVICE} is absent: a container needs it and the cards' /dev/dri/renderD* (--device)")
    if not os.access(device, os.R_OK | os.W_OK):
        raise SysfsError(f"/{DEVICE} may not be opened by this user: it belongs to the group render, or video")
    return list(_cards(topology, root))


def driver(root: Path) -> str:
    """Return the version of the kernel's driver, or of ROCm, whichever is told; empty if neither is."""
    return _text(root / "sys/module/amdgpu/version") or _text(root / "opt/rocm/.info/version")


def _cards(topology: Path, root: Path) -> Iterator[Node]:
    for folder in sorted(topology.glob("[0-9]*"), key=lambda one: int(one.name)):
        if _text(folder / "gpu_id") in ("", "0"):  # a processor
            continue
        node = Node(folder, root)
        if node.properties:  # a card of another container cannot be read
            yield node


def _pairs(file: Path) -> dict[str, str]:
    return dict(words for line in _text(file).splitlines() if len(words := line.split(maxsplit=1)) == 2)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
