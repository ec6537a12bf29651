"""The probe of AMD cards, over files as the kernel's driver writes them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from core_plugin_accelerator import TorchBuild
from core_plugin_rocm.manifest import ROCM
from core_plugin_rocm.probe import look, probe

GIB = 2**30
TORCH = TorchBuild("2.13.0+rocm7.1", hip="7.1.0")
CARDS = {
    "MI210": (90010, 64, "AMD Instinct MI210"),
    "MI250X": (90010, 64, "AMD Instinct MI250X"),
    "MI300X": (90402, 192, "AMD Instinct MI300X"),
    "MI325X": (90402, 256, "AMD Instinct MI325X"),
    "MI355X": (90500, 288, "AMD Instinct MI355X"),
    "RX 7900": (110000, 24, "Radeon RX 7900 XTX"),
    "RX 9070": (120001, 16, ""),
    "MI50": (90006, 32, "AMD Instinct MI50"),
}


def machine(root, *names, processors=1):
    """Write what a machine with these cards shows; return where its file system begins."""
    (root / "dev").mkdir()
    (root / "dev/kfd").touch()
    topology = root / "sys/class/kfd/kfd/topology/nodes"
    for number in range(processors):
        write(topology / str(number) / "gpu_id", "0")
    for place, name in enumerate(names):
        version, gib, product = CARDS[name]
        node = topology / str(processors + place)
        write(node / "gpu_id", str(4711 + place))
        lines = [f"gfx_target_version {version}", f"unique_id {255 + place}", f"drm_render_minor {128 + place}"]
        write(node / "properties", "\n".join(lines))
        write(node / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {gib * GIB}\n")
        write(node / "mem_banks/1/properties", f"heap_type 0\nsize_in_bytes {999 * GIB}\n")  # the host's
        write(root / f"sys/class/drm/renderD{128 + place}/device/product_name", f"{product}\n")
    write(root / "sys/module/amdgpu/version", "6.14.14\n")
    return root


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("name", "arch", "capability", "further", "fp8"),
    [
        ("MI210", "gfx90a", (9, 0, 10), set(), "float8_e4m3fn"),
        ("MI250X", "gfx90a", (9, 0, 10), set(), "float8_e4m3fn"),
        ("MI300X", "gfx942", (9, 4, 2), {"fp8_e4m3fnuz", "fp8_e5m2fnuz"}, "float8_e4m3fnuz"),
        ("MI325X", "gfx942", (9, 4, 2), {"fp8_e4m3fnuz", "fp8_e5m2fnuz"}, "float8_e4m3fnuz"),
        ("MI355X", "gfx950", (9, 5, 0), {"fp8_e4m3", "fp8_e5m2", "fp4_e2m1"}, "float8_e4m3fn"),
        ("RX 7900", "gfx1100", (11, 0, 0), set(), "float8_e4m3fn"),
        ("RX 9070", "gfx1201", (12, 0, 1), {"fp8_e4m3", "fp8_e5m2"}, "float8_e4m3fn"),
    ],
)
def test_a_card_is_told_with_what_it_can_do(tmp_path, name, arch, capability, further, fp8):
    found = look({}, TORCH, machine(tmp_path, name))
    title = CARDS[name][2] or f"AMD {arch}"
    assert found.available and found.capability == capability
    assert found.reason == f"{title} ({arch}), {CARDS[name][1]} GiB, driver 6.14.14"
    assert found.features == {"rocm", "bf16", "own_memory"} | further
    assert (found.facts["fp8_dtype"], found.facts["torch_hip"]) == (fp8, "7.1.0")
    prefers = found.preferences
    assert ("core.attention_backends:aiter" in prefers) == (arch in ("gfx942", "gfx950"))


@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({}, ["MI300X", "MI325X", "MI355X"]),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ["MI355X", "MI300X"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["MI325X"]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, ["MI300X"]),
        ({"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, ["MI355X"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-0000000000000101"}, ["MI355X"]),
    ],
)
def test_visible_devices_hold_one_after_the_other(tmp_path, environ, names):
    found = look(environ, TORCH, machine(tmp_path, "MI300X", "MI325X", "MI355X"))
    assert [found.of(index).facts["name"] for index in range(found.count)] == [CARDS[name][2] for name in names]


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("names", "environ", "torch", "why"),
    [
        ((), {}, TORCH, "the amdgpu driver finds no card that this process may use"),
        (("MI300X",), {"HIP_VISIBLE_DEVICES": ""}, TORCH, "HIP_VISIBLE_DEVICES is set and empty"),
        (("MI300X",), {"ROCR_VISIBLE_DEVICES": "3"}, TORCH, "'3' names none of the 1 here"),
        (
            ("MI300X",),
            {},
            TorchBuild("2.13.0+cpu"),
            "built for the CPU alone; install one from pytorch.org's index for ROCm",
        ),
        (("MI300X",), {}, TorchBuild("2.13.0+cu130", cuda="13.0"), "is built for cuda"),
        (("MI50",), {}, TORCH, "AMD Instinct MI50 is a gfx906, and supported are gfx90a, gfx94?"),
    ],
)
def test_a_card_that_cannot_be_used_says_why_in_one_line(tmp_path, names, environ, torch, why):
    found = look(environ, torch, machine(tmp_path, *names))
    assert not found.available and why in found.reason and "\n" not in found.reason


def test_without_driver_device_or_permission_the_reason_is_another(tmp_path, monkeypatch):
    assert look({}, TORCH, tmp_path).reason == "no amdgpu driver: /sys/class/kfd/kfd/topology/nodes is absent"
    root = machine(tmp_path, "MI300X")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert (
        look({}, TORCH, root).reason
        == "/dev/kfd may not be opened by this user: it belongs to the group render, or video"
    )
    (root / "dev/kfd").unlink()
    assert look({}, TORCH, root).reason.startswith("/dev/kfd is absent: a container needs it")


def test_a_driver_that_tells_no_target_is_too_old(tmp_path):
    root = machine(tmp_path, "MI300X")
    write(root / "sys/class/kfd/kfd/topology/nodes/1/properties", "unique_id 1\n")
    assert "the amdgpu driver is too old" in look({}, TORCH, root).reason


def test_a_card_of_another_container_is_passed_over(tmp_path):
    root = machine(tmp_path, "MI300X", "MI355X")
    write(root / "sys/class/kfd/kfd/topology/nodes/1/properties", "")
    assert look({}, TORCH, root).facts["name"] == "AMD Instinct MI355X"


@pytest.mark.covers("PLAT-01")
def test_of_two_platforms_for_one_type_of_device_the_build_of_torch_decides(tmp_path):
    """Both call their devices `cuda`; what `cuda` says of the build is in its own tests."""

    def lacks(build):
        return bool(build.lacks("cuda", "CUDA"))

    root = machine(tmp_path, "MI300X")
    cuda = TorchBuild("2.13.0+cu130", cuda="13.0")
    assert (look({}, TORCH, root).available, lacks(TORCH)) == (True, True)
    assert (look({}, cuda, root).available, lacks(cuda)) == (False, False)


def test_the_probe_never_raises(monkeypatch):
    monkeypatch.setattr("core_plugin_rocm.probe.look", lambda *_: 1 / 0)
    assert probe().reason == "the cards could not be asked: ZeroDivisionError: division by zero"


def test_manifest_and_probe_import_no_torch():
    code = f"import sys; import {ROCM.probe.partition(':')[0]} as p; p.probe(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
