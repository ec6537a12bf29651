"""The probe of Intel cards, over a library that answers as the Level Zero loader does, and the platform's own."""

from __future__ import annotations

import logging
import subprocess
import sys
from itertools import pairwise

import pytest
import torch.distributed as dist
from core_plugin_accelerator import TorchBuild
from core_plugin_accelerator.stand_in import stand_in
from core_plugin_xpu import level_zero
from core_plugin_xpu.devices import FAMILIES, family_of
from core_plugin_xpu.manifest import XPU
from core_plugin_xpu.platform import CLIENT_RESERVE, XpuPlatform
from core_plugin_xpu.probe import card, look, probe

from core.api import StepShape
from core.api.errors import EngineError

GIB = 2**30
TORCH = TorchBuild("2.13.0+xpu", xpu="20250302")
CARDS = {
    "A770": ("Intel(R) Arc(TM) A770 Graphics", 0x56A0, 16, 0),
    "B580": ("Intel(R) Arc(TM) B580 Graphics", 0xE20B, 12, 0),
    "B60": ("Intel(R) Arc(TM) Pro B60 Graphics", 0xE211, 24, 0),
    "Max 1550": ("Intel(R) Data Center GPU Max 1550", 0x0BD5, 64, 0),
    "Max 1100": ("Intel(R) Data Center GPU Max 1100", 0x0BDA, 48, 0),
    "Flex 170": ("Intel(R) Data Center GPU Flex 170", 0x56C0, 16, 0),
    "Lunar Lake": ("Intel(R) Arc(TM) Graphics", 0x64A0, 30, 1),
    "UHD": ("Intel(R) UHD Graphics 770", 0x4680, 30, 1),
}


class FakeLoader:
    """Answers as the library does: a status, and values in what was passed."""

    def __init__(self, *names, status=0):
        self.cards, self.status = [CARDS[name] for name in names], status

    def zeInit(self, flags):
        return self.status - 2**32 if self.status > 2**31 else self.status

    def _list(self, count, handles, number):
        if handles is None:
            count._obj.value = number
        else:
            handles[:] = list(range(1, number + 1))
        return 0

    def zeDriverGet(self, count, handles):
        return self._list(count, handles, 1)

    def zeDriverGetProperties(self, driver, properties):
        properties._obj.driverVersion = (1 << 24) | (6 << 16) | 33578
        return 0

    def zeDeviceGet(self, driver, count, handles):
        return self._list(count, handles, len(self.cards))

    def zeDeviceGetProperties(self, device, properties):
        name, pci_id, _, flags = self.cards[device.value - 1]
        assert properties._obj.stype == 3
        properties._obj.name, properties._obj.deviceId = name.encode(), pci_id
        properties._obj.type, properties._obj.flags = 1, flags
        return 0

    def zeDeviceGetMemoryProperties(self, device, count, found):
        if found is None:
            count._obj.value = 1
        else:
            assert found[0].stype == 7
            found[0].totalSize = self.cards[device.value - 1][2] * GIB
        return 0


@pytest.mark.covers("PLAT-01", "PLAT-02")
@pytest.mark.parametrize(
    ("name", "arch", "capability", "client"),
    [
        ("A770", "dg2", (12, 55), True),
        ("B580", "bmg", (20, 1), True),
        ("B60", "bmg", (20, 1), True),
        ("Max 1550", "pvc", (12, 60), False),
        ("Max 1100", "pvc", (12, 60), False),
        ("Flex 170", "dg2", (12, 55), False),
        ("Lunar Lake", "lnl", (20, 4), True),
    ],
)
def test_a_card_is_told_by_its_device_alone(name, arch, capability, client):
    title, _, gib, integrated = CARDS[name]
    found = look({}, TORCH, FakeLoader(name))
    assert found.available and found.capability == capability
    assert found.reason == f"{title} ({arch}), {gib} GiB, driver 1.6.33578"
    assert found.features == {"xpu", "bf16", "own_memory"}
    assert (found.facts["client"], found.facts["integrated"]) == (client, bool(integrated))
    assert found.facts["fp8_dtype"] == "float8_e4m3fn"
    made_for_it = {"core.attention_backends:xpu_kernels": 20} if arch in ("bmg", "pvc") else {}
    assert found.preferences == {"core.attention_backends:triton": 5, **made_for_it}


def test_a_part_of_the_processor_is_left_out_beside_a_card():
    assert look({}, TORCH, FakeLoader("Lunar Lake", "B580")).facts["name"] == CARDS["B580"][0]
    assert look({}, TORCH, FakeLoader("Lunar Lake", "B580")).count == 1


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("loader", "environ", "torch", "why"),
    [
        (FakeLoader("B580", status=0x78000001), {}, TORCH, "the loader finds no driver (zeInit: 0x78000001)"),
        (FakeLoader("B580", status=0x78000002), {}, TORCH, "the driver is too old for the loader"),
        (FakeLoader("B580", status=0x70010000), {}, TORCH, "this user may not open the card"),
        (
            FakeLoader("B580", status=0x78000001),
            {"ZE_AFFINITY_MASK": "9"},
            TORCH,
            "no driver (zeInit: 0x78000001); ZE_AFFINITY_MASK='9' may hide it",
        ),
        (FakeLoader(), {}, TORCH, "Level Zero finds no GPU"),
        (FakeLoader(), {"ZE_AFFINITY_MASK": ""}, TORCH, "finds no GPU: ZE_AFFINITY_MASK='' hides every one"),
        (
            FakeLoader("B580"),
            {},
            TorchBuild("2.13.0+cpu"),
            "built for the CPU alone; install one from pytorch.org's index for XPU",
        ),
        (FakeLoader("UHD"), {}, TORCH, "UHD Graphics 770 (PCI device 0x4680) is of no architecture that torch runs on"),
    ],
)
def test_a_card_that_cannot_be_used_says_why_in_one_line(loader, environ, torch, why):
    found = look(environ, torch, loader)
    assert not found.available and why in found.reason and "\n" not in found.reason


def test_a_card_on_the_bus_without_the_loader_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(level_zero, "LIBRARY", "libthere-is-none.so.1")
    assert look({}, TORCH, root=tmp_path).reason.startswith("no Level Zero loader: libthere-is-none.so.1: cannot open")
    vendor = tmp_path / "sys/class/drm/card1/device/vendor"
    vendor.parent.mkdir(parents=True)
    vendor.write_text("0x8086\n")
    assert look({}, TORCH, root=tmp_path).reason.startswith("an Intel GPU is on the bus, but no Level Zero loader")
    vendor.write_text("0x10de\n")
    assert look({}, TORCH, root=tmp_path).reason.startswith("no Level Zero loader")


def test_families_do_not_overlap():
    spans = sorted((one.first, one.last) for one in FAMILIES)
    assert all(first <= last for first, last in spans)
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    assert family_of(0x4680) is None


def test_the_probe_never_raises(monkeypatch):
    monkeypatch.setattr("core_plugin_xpu.probe.look", lambda *_: 1 / 0)
    assert probe().reason == "the cards could not be asked: ZeroDivisionError: division by zero"


def test_manifest_and_probe_import_no_torch():
    code = f"import sys; import {XPU.probe.partition(':')[0]} as p; p.probe(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


# -- the platform ------------------------------------------------------------------------------------------------------


@pytest.fixture
def opened():
    platform = stand_in(XpuPlatform)
    yield platform
    platform.close()


@pytest.mark.covers("PLAT-02")
@pytest.mark.parametrize("available", [True, False])
def test_a_torch_without_xccl_is_one_warning_and_an_error_where_ranks_are_asked_for(
    opened, caplog, monkeypatch, available
):
    monkeypatch.setattr(dist, "is_xccl_available", lambda: available)
    with caplog.at_level(logging.WARNING):
        opened.open(threads=None, seed=0, index=0)
    told = [record.getMessage() for record in caplog.records if "XCCL" in record.getMessage()]
    assert len(told) == (0 if available else 1)
    assert opened.collectives.world_size == 1
    if not available:
        with pytest.raises(EngineError, match="exchange by XCCL, which torch") as refused:
            opened._join(None, 0, 2)
        assert refused.value.code == "CORE-E138"


@pytest.mark.covers("PLAT-04")
@pytest.mark.parametrize(
    ("name", "kept"), [("Intel(R) Arc(TM) B580 Graphics", CLIENT_RESERVE), ("Intel(R) Data Center GPU Max 1100", 0)]
)
def test_a_client_card_keeps_memory_for_its_driver(opened, monkeypatch, name, kept):
    monkeypatch.setattr("core_testing.fakedevice.module.FakeModule.get_device_name", lambda self, index: name)
    opened.open(threads=None, seed=0, index=0)
    memory = opened.memory()
    assert memory.total - memory.free == kept and CLIENT_RESERVE >= 128 * 2**20
    assert card(name, 0x0BDA, GIB).facts["client"] == bool(kept)


@pytest.mark.covers("COMP-03")
def test_the_platform_captures_steps(opened):
    opened.open(threads=None, seed=0, index=0)
    assert len(opened.graphs.sizes(StepShape(256, 256, 1, 128))) == 12
