"""Tables of docs/supported.md, and a check that finds a page that is not current."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from core.api.descriptors import AttentionSpec

TOOL = Path(__file__).parents[3] / "tools" / "supported.py"


@pytest.fixture
def tool(monkeypatch):
    spec = importlib.util.spec_from_file_location("supported", TOOL)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "supported", module)
    spec.loader.exec_module(module)
    return module


def backend(name, **fields):
    common = {"api": 2, "summary": "s", "impl": "a:B", "band": 1, "devices": {"cuda"}, "dtypes": {"bfloat16"}}
    return AttentionSpec(name=name, **common, kv_dtypes={"int8", "bfloat16"}, **fields)


@pytest.mark.covers("ATTN-01")
def test_a_row_says_what_an_attention_backend_states(tool):
    fast = backend("fast", head_dims={128, 64}, block_multiple=256, refine="a:fits", features={"softcap", "alibi"})
    sizes = backend("sizes", head_dims=set(range(8, 257, 8)))
    rows = list(tool.attention_table([("acme", sizes), ("acme", fast), ("acme-any", backend("any"))]))[2:]
    given = "`cuda` | `bfloat16` | `bfloat16`, `int8`"
    assert rows == [
        f"| `any` (acme-any) | {given} | any | 1 |  |  |",
        f"| `fast` (acme) | {given} | 64, 128 | 256 | `alibi`, `softcap` | yes |",
        f"| `sizes` (acme) | {given} | 8, 16, ... 256 | 1 |  |  |",
    ]


@pytest.mark.covers("ATTN-01")
def test_a_page_that_is_not_current_is_found_and_written_once(tool, tmp_path, monkeypatch, capsys):
    page = tmp_path / "supported.md"
    monkeypatch.setattr(tool, "_PAGE", page)
    assert tool.main(["--check"]) == 1 and "is stale" in capsys.readouterr().err and not page.exists()
    assert tool.main([]) == 0 and tool.main(["--check"]) == 0
    assert page.read_text() == (TOOL.parents[1] / "docs" / "supported.md").read_text()
    page.write_text(page.read_text().replace("`torch_sdpa`", "`torch`"))
    assert tool.main(["--check"]) == 1
