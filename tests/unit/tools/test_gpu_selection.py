"""What each card gets: the choice by what cards prefer and by what backends say of them, and a page that is current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.selection.report import Row

TOOL = Path(__file__).parents[3] / "tools" / "gpu_selection.py"
BACKENDS = """
from core.api.descriptors import AttentionSpec
from core.api.verdict import Verdict

ALL = dict(api=2, summary="s", devices={"cuda", "xpu"}, dtypes={"bfloat16"}, kv_dtypes={"bfloat16"})
FA = AttentionSpec(name="flash_attn", impl="a:B", band=3, refine="cards_backends:newer", **ALL)
FI = AttentionSpec(name="flashinfer", impl="a:B", band=3, **ALL)
AITER = AttentionSpec(name="aiter", impl="a:B", band=3, refine="cards_backends:amd", **ALL)
SLOW = AttentionSpec(name="slow", impl="a:B", band=1, features={"latent"}, **ALL)


def newer(request, probe):
    return Verdict.of(None if probe.capability >= (9, 0) and probe.has("cuda") else "made for Hopper")


def amd(request, probe):
    return Verdict.of(None if probe.has("rocm") else "made for ROCm")
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    (tmp_path / "cards_backends.py").write_text(BACKENDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(TOOL.parent))
    spec = importlib.util.spec_from_file_location("gpu_selection", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "gpu_selection", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.covers("PLAT-01")
def test_cards_of_one_type_of_device_get_what_is_made_for_them(tool, monkeypatch):
    names = {"flash_attn": "FA", "flashinfer": "FI", "aiter": "AITER", "slow": "SLOW"}
    group = "core.attention_backends"
    made = Catalogue([Entry(group, name, "acme", "1.0", f"cards_backends:{value}") for name, value in names.items()])
    monkeypatch.setattr(tool, "catalogue", lambda: made)
    given, why = {}, {}
    for device in tool.devices():
        report = tool.backend_for(device, {"head_dim": 128})
        given[device.probe.facts["arch"]] = report.chosen.entry.name
        why[device.probe.facts["arch"]] = {row.name: row.reasons for row in report.rows}
    assert given == {
        **dict.fromkeys(("8.0", "8.6", "8.9"), "flashinfer"),
        "9.0": "flash_attn",
        **dict.fromkeys(("10.0", "10.3", "12.0"), "flashinfer"),
        **dict.fromkeys(("gfx942", "gfx950"), "aiter"),
        **dict.fromkeys(("gfx90a", "gfx1100"), given["gfx90a"]),
        **dict.fromkeys(("dg2", "bmg", "pvc"), "flashinfer"),
    }
    assert why["8.0"]["flash_attn"] == ("made for Hopper",) and why["9.0"]["aiter"] == ("made for ROCm",)
    assert why["gfx942"]["flash_attn"] == ("made for Hopper",)
    latent = tool.backend_for(tool.devices()[0], {"head_dim": 192, "features": {"latent"}})
    assert latent.chosen.entry.name == "slow"


@pytest.mark.covers("ATTN-09", "ATTN-10", "MOE-04")
def test_libraries_are_judged_as_if_they_were_installed(tool):
    cards = {device.probe.facts["arch"]: device for device in tool.devices()}
    latent, picks = tool.MODELS["DeepSeek V3, blocks of 64"], tool.MODELS["DeepSeek V3.2 (picks)"]
    assert tool.backend_for(cards["9.0"], latent, libraries=True).chosen.entry.name == "flashmla"
    assert tool.backend_for(cards["10.0"], latent, libraries=True).chosen.entry.name == "flashinfer"
    assert tool.backend_for(cards["gfx942"], latent, libraries=True).chosen.entry.name == "aiter"
    assert tool.backend_for(cards["9.0"], latent).chosen.entry.name == "triton"
    more = tool.backend_for(cards["9.0"], {**latent, "num_heads": 144, "num_kv_heads": 144}, libraries=True)
    why = {row.name: row.reasons for row in more.rows}
    assert why["flashmla"] == ("it has at most 128 heads, the model has 144",)
    assert why["flashinfer"] == ("its tiles of 128 queries and heads cut those of 144 heads",)
    sparse = {row.name: row.reasons for row in tool.backend_for(cards["bmg"], picks, libraries=True).rows}
    assert sparse["xpu_kernels"] == ("lacks latent, picks",)
    blocks = "float8 in blocks (DeepSeek, Qwen)"
    (hopper,), (plain,) = (tool.experts_of([cards["9.0"]], libraries=given) for given in (True, False))
    assert hopper[blocks].how == "experts_in: deepgemm_experts_in, experts_out: deepgemm_experts_out"
    assert plain[blocks].how == "experts_in: triton_stored_experts_in, experts_out: triton_stored_experts_out"
    (amd,) = tool.experts_of([cards["gfx942"]], libraries=True)
    told = {row.name: row.reasons for row in amd[blocks].rows}
    assert told["deepgemm_experts_in"] == ("DeepGEMM is for cards of NVIDIA, not for gfx942",)


def test_the_same_reasons_are_told_once(tool):
    tables = __import__("gpu_tables")

    def row(*reasons):
        return Row("a", "acme", "1.0", "rejected", None, reasons)

    assert tables.why_not(row("device xpu not in {cuda}", "lacks picks")) == "device xpu not in {cuda}"
    assert tables.why_not(row("it needs 9.0, the card has 8.0", "lacks picks")) == "it needs 9.0; lacks picks"
    assert tables.why_not(row()) == "a lower score"
    told = {
        ("b", "x"): ["cuda: this", "cuda: that"],
        ("a", "x"): ["cuda: this", "cuda: that"],
        ("c", "x"): ["xpu: that"],
    }
    assert list(tables.why_not_table("kernel", told, 2))[2:] == ["| `a`, `b` | x | cuda |", "| `c` | x | xpu: that |"]


def test_the_page_is_what_the_checkout_gives(tool):
    assert (TOOL.parents[1] / "docs" / "gpu-selection.md").read_text() == tool.page()
