"""A kernel that needs a platform of its own is checked on it; where there is none, that is said and counted."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

PLATFORM_MANIFEST = """
from core.api import PlatformSpec

SPEC = PlatformSpec(
    name="acme_runtime", impl="PKG.platform:Acme", api=2, summary="s", band=4, device_type="{device}",
    probe="PKG.probe:probe", dtypes=("float32",),
)
"""
PROBE = """
from core.api import ProbeResult

def probe():
    return ProbeResult(available={available}, reason="no card in the slot", features=frozenset({features}))
"""
PLATFORM = """
import torch
from core_plugin_cpu.platform import CPUPlatform

OPEN = []

class Acme(CPUPlatform):
    def open(self, *, threads, seed, index):
        OPEN.append(True)
        return torch.device("cpu")
    def close(self): OPEN.clear()
"""
KERNEL_MANIFEST = """
from core.api import KernelSpec

SPEC = KernelSpec(
    name="broken", impl="PKG.kernel:kernel", api=1, summary="s", op="gelu", devices=frozenset({{"{device}"}}),
    dtypes=frozenset({{"float32"}}), needs=frozenset({needs}),
)
"""
KERNEL = """
from torch.nn.functional import gelu

def kernel(x):
    from {platform}.platform import OPEN

    assert OPEN, "its platform is not open"
    return gelu(x){wrong}
"""
CHECKS = ("generated_sizes_match_reference", "any_number_of_rows_matches_reference", "outputs_are_its_own")


@pytest.fixture
def kernel(make_plugin):
    """`kernel(...)` installs a platform, if one is asked for, and a kernel that works while that is open alone."""

    def make(device="cpu", available=True, features='{"acme_isa"}', *, platform=True, wrong=""):
        package = "nowhere"
        if platform:
            modules = {
                "manifest": PLATFORM_MANIFEST.replace("{device}", device),
                "probe": PROBE.replace("{available}", str(available)).replace("{features}", features),
                "platform": PLATFORM,
            }
            package = make_plugin("core.platforms", modules, name="acme_runtime").package
        needs = '{"acme_isa"}' if device == "cpu" else "()"
        source = KERNEL.replace("{platform}", package).replace("{wrong}", wrong)
        return make_plugin(
            "core.kernels", {"manifest": KERNEL_MANIFEST.format(device=device, needs=needs), "kernel": source}
        )

    return make


@pytest.mark.covers("PLAT-01")
def test_a_kernel_runs_on_the_platform_that_has_what_it_needs(kernel):
    report = kernel().report("kernels")
    assert (report.failures, report.not_run, report.level) == ([], [], Level.L1)


def test_the_platform_is_open_in_each_run_and_closed_behind_it(kernel):
    made = kernel()
    for _ in range(2):
        assert made.report(checks=CHECKS).failures == []
    failing = made.report(checks=("stays_inside_its_tensors",))
    assert failing.failures == []


def test_what_is_wrong_there_is_caught(kernel):
    assert "generated_sizes_match_reference" in kernel(wrong=" * 2").failing("kernels")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"available": False}, "platform 'acme_runtime' finds no device: no card in the slot"),
        ({"features": '{"other_isa"}'}, "platform 'acme_runtime' lacks acme_isa"),
        ({"platform": False}, "platform 'cpu' lacks acme_isa"),
    ],
)
def test_a_kernel_without_its_platform_is_not_shown(kernel, given, said):
    report = kernel(**given).report("kernels", "manifest")
    (missing,) = report.not_run
    assert "skipped: needs platform cpu with acme_isa" in missing.because and said in missing.because
    assert len(missing.checks) > 5 and report.level == Level.L0
    assert not [
        one for one in report.outcomes if one.area == "kernels" and one.status == "passed" and one.check in CHECKS
    ]


def test_a_kernel_for_a_device_of_its_own_reaches_l2_there(kernel):
    report = kernel("npu").report("kernels", "manifest", level=Level.L2)
    assert (report.failures, report.not_run, report.level) == ([], [], Level.L2)
    assert {one.check for one in report.outcomes if one.check in CHECKS} == set()
    assert {f"{check}@npu" for check in CHECKS} <= {one.check for one in report.outcomes if one.status == "passed"}


def test_a_kernel_for_a_device_that_is_not_here_says_which_platform_looked_for_it(kernel):
    made = kernel("npu", available=False)
    report = made.report("kernels", "manifest", level=Level.L2, checks=(*CHECKS, "a_declared_accelerator_is_here"))
    (missing,) = [one for one in report.not_run if one.level == Level.L2]
    assert "of type npu here (platform 'acme_runtime': no card in the slot)" in missing.because
    assert {one.status for one in report.outcomes} == {"unavailable"}
