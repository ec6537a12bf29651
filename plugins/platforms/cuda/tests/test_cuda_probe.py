"""The probe of NVIDIA cards, over a library that answers as NVML does."""

from __future__ import annotations

import subprocess
import sys

import pytest
from core_plugin_accelerator import TorchBuild
from core_plugin_cuda import nvml
from core_plugin_cuda.manifest import CUDA
from core_plugin_cuda.probe import environment, look, probe

GIB = 2**30
TORCH = TorchBuild("2.13.0+cu130", cuda="13.0")
CARDS = {
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 80),
    "A10": ("NVIDIA A10", (8, 6), 24),
    "L4": ("NVIDIA L4", (8, 9), 24),
    "RTX 4090": ("NVIDIA GeForce RTX 4090", (8, 9), 24),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 80),
    "H200": ("NVIDIA H200", (9, 0), 141),
    "B200": ("NVIDIA B200", (10, 0), 180),
    "GB300": ("NVIDIA GB300", (10, 3), 279),
    "RTX 5090": ("NVIDIA GeForce RTX 5090", (12, 0), 32),
    "GTX 1080": ("NVIDIA GeForce GTX 1080", (6, 1), 8),
}


class FakeNvml:
    """Answers as the library does: a status, and values in what was passed by reference."""

    def __init__(self, *names, driver="580.65.06", cuda=13000, status=0, missing=()):
        self.cards = [CARDS[name] for name in names]
        self.driver, self.cuda, self.status, self.closed = driver, cuda, status, 0
        self.nvmlErrorString = lambda status: b"Unknown Error"
        self.missing = missing

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit_v2(self):
        return self.status

    def nvmlShutdown(self):
        self.closed += 1
        return 0

    def nvmlSystemGetDriverVersion(self, buffer, size):
        buffer.value = self.driver.encode()
        return 0

    def nvmlSystemGetCudaDriverVersion_v2(self, version):
        version._obj.value = self.cuda
        return 0

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self.cards)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):
        handle._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid, handle):
        handle._obj.value = 101 if uuid == b"MIG-77" else 0
        return 0 if uuid == b"MIG-77" else 6

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part, handle):
        handle._obj.value = 1
        return 0

    def nvmlDeviceGetName(self, device, buffer, size):
        buffer.value = self.cards[device.value - 1][0].encode()
        return 0

    def nvmlDeviceGetUUID(self, device, buffer, size):
        buffer.value = f"GPU-{device.value:04d}".encode()
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, device, major, minor):
        major._obj.value, minor._obj.value = self.cards[device.value - 1][1]
        return 0

    def nvmlDeviceGetMemoryInfo(self, device, memory):
        memory._obj.total = 10 * GIB if device.value > 100 else self.cards[device.value - 1][2] * GIB
        return 0


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("name", "floats"),
    [
        ("A100", {"bf16"}),
        ("A10", {"bf16"}),
        ("L4", {"bf16", "fp8_e4m3", "fp8_e5m2"}),
        ("RTX 4090", {"bf16", "fp8_e4m3", "fp8_e5m2"}),
        ("H100", {"bf16", "fp8_e4m3", "fp8_e5m2"}),
        ("H200", {"bf16", "fp8_e4m3", "fp8_e5m2"}),
        ("B200", {"bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1"}),
        ("GB300", {"bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1"}),
        ("RTX 5090", {"bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1"}),
    ],
)
def test_a_card_is_told_with_what_it_can_do(name, floats):
    title, capability, gib = CARDS[name]
    found = look({}, TORCH, FakeNvml(name))
    arch = ".".join(map(str, capability))
    assert found.available and found.capability == capability
    assert found.reason == f"{title} ({arch}), {gib} GiB, driver 580.65.06"
    assert found.features == floats | {"cuda", "own_memory"}
    assert found.facts == {
        "name": title,
        "arch": arch,
        "memory": gib * GIB,
        "count": 1,
        "fp8_dtype": "float8_e4m3fn",
        "driver": "580.65.06",
        "driver_cuda": "13.0",
        "torch_cuda": "13.0",
    }
    assert found.preferences["core.attention_backends:triton"] == 5


@pytest.mark.parametrize(
    ("name", "prefers"),
    [
        ("A100", "flashinfer"),
        ("H100", "flash_attn_3"),
        ("B200", "flashinfer"),
        ("GB300", "flashinfer"),
        ("H100", "flashmla"),
        ("RTX 5090", "flashinfer"),
    ],
)
def test_cards_prefer_what_is_made_for_them(name, prefers):
    assert look({}, TORCH, FakeNvml(name)).preferences[f"core.attention_backends:{prefers}"] >= 10


@pytest.mark.parametrize(
    ("value", "names"),
    [(None, ["A100", "H100", "H100"]), ("2,0", ["H100", "A100"]), ("GPU-0002", ["H100"]), ("1,9", ["H100"])],
)
def test_visible_devices_hold_in_their_order(value, names):
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    found = look(environ, TORCH, FakeNvml("A100", "H100", "H100"))
    assert [found.of(index).facts["name"] for index in range(found.count)] == [CARDS[name][0] for name in names]


def test_a_part_of_a_card_has_its_own_memory():
    found = look({"CUDA_VISIBLE_DEVICES": "MIG-77"}, TORCH, FakeNvml("H100"))
    assert (found.count, found.facts["name"], found.facts["memory"]) == (1, "part of NVIDIA H100 80GB HBM3", 10 * GIB)
    assert found.capability == (9, 0)


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("library", "environ", "torch", "why"),
    [
        (FakeNvml("H100", status=9), {}, TORCH, "the NVIDIA driver is not loaded: its library is here"),
        (FakeNvml("H100", status=999), {}, TORCH, "NVML: nvmlInit_v2 failed: Unknown Error (999)"),
        (
            FakeNvml("H100", missing=("nvmlInit_v2",)),
            {},
            TORCH,
            "the NVIDIA driver is too old: its libnvidia-ml.so.1 has no",
        ),
        (FakeNvml(), {}, TORCH, "the NVIDIA driver 580.65.06 finds no card"),
        (FakeNvml("H100"), {"CUDA_VISIBLE_DEVICES": ""}, TORCH, "CUDA_VISIBLE_DEVICES is set and empty"),
        (FakeNvml("H100"), {"CUDA_VISIBLE_DEVICES": "MIG-0"}, TORCH, "nvmlDeviceGetHandleByUUID failed"),
        (
            FakeNvml("H100", driver="535.1", cuda=12020),
            {},
            TORCH,
            "driver 535.1 is too old: it runs CUDA up to 12.2, and torch 2.13.0+cu130 is built for CUDA 13.0",
        ),
        (FakeNvml("H100"), {}, TorchBuild("2.13.0+cpu"), "the installed torch 2.13.0+cpu is built for the CPU alone"),
        (FakeNvml("H100"), {}, TorchBuild("2.9+rocm", hip="6.4"), "torch 2.9+rocm is built for hip"),
        (FakeNvml("H100"), {}, TorchBuild(), "torch is not installed"),
        (FakeNvml("GTX 1080"), {}, TORCH, "NVIDIA GeForce GTX 1080 has compute capability 6.1, and 8.0 is the oldest"),
    ],
)
def test_a_card_that_cannot_be_used_says_why_in_one_line(library, environ, torch, why):
    found = look(environ, torch, library)
    assert not found.available and why in found.reason and "\n" not in found.reason
    assert library.closed == (0 if library.status or library.missing else 1)


def test_an_older_driver_of_the_same_major_version_serves():
    assert look({}, TorchBuild("2.9.1+cu128", cuda="12.8"), FakeNvml("A100", cuda=12020)).available


def test_an_old_card_beside_a_new_one_keeps_its_index():
    found = look({}, TORCH, FakeNvml("GTX 1080", "H100"))
    assert not found.available and found.of(1).available and found.count == 2


def test_here_is_no_driver_and_that_is_a_reason(monkeypatch):
    monkeypatch.setattr(nvml, "LIBRARY", "libthere-is-none.so.1")
    found = look({}, TORCH)
    assert not found.available
    assert found.reason.startswith("no NVIDIA driver: libthere-is-none.so.1: cannot open")


def test_the_probe_never_raises(monkeypatch):
    monkeypatch.setattr("core_plugin_cuda.probe.look", lambda *_: 1 / 0)
    assert probe().reason == "the cards could not be asked: ZeroDivisionError: division by zero"


def test_cuda_numbers_cards_as_the_probe_does():
    assert environment(4) == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_manifest_and_probe_import_no_torch():
    code = f"import sys; import {CUDA.probe.partition(':')[0]} as p; p.probe(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_memory_that_is_not_told_is_none():
    fake = FakeNvml("H100")
    fake.nvmlDeviceGetMemoryInfo = lambda device, memory: nvml.NOT_SUPPORTED
    assert look({}, TORCH, fake).facts["memory"] == 0
