"""`core bench tune`: what it times, which sizes it keeps, where it writes them, and what it says without a GPU."""

import json
import logging
from argparse import Namespace

import pytest
import torch
import triton.language as tl
from core_plugin_kernels_triton import tables
from core_plugin_kernels_triton.ops.tiles import tiles
from core_plugin_kernels_triton.tune.candidates import OPS
from core_plugin_kernels_triton.tune.cases import Sizes, cases
from core_plugin_kernels_triton.tune.command import BenchTune, device_here, sizes_of
from core_plugin_kernels_triton.tune.parts import PARTS
from core_plugin_kernels_triton.tune.search import search
from core_plugin_kernels_triton.tune.store import keep

from core.api import ConfigError
from core.cli.main import main
from core.config.parser import CoreParser

CPU = torch.device("cpu")
TINY = Sizes(rows=(1, 3), hidden=12, intermediate=10, heads=3, kv_heads=1, head_dim=4, vocabulary=37, dtype="float32")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache folder, of which tables of cards are read as they are on a card."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "INTERPRETED", tl.constexpr(False))
    tables._table.cache_clear()
    yield tmp_path / "core" / "triton" / "ops.toml"
    tables._table.cache_clear()


def test_without_a_gpu_it_says_so_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr("core_plugin_kernels_triton.tune.command.device_here", lambda: None)
    assert main(["bench", "tune"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "core bench tune: no GPU of CUDA, ROCm or XPU is here, so nothing was timed or written.\n",
        "",
    )


def test_a_gpu_is_one_that_torch_finds(monkeypatch):
    for kind in ("cuda", "xpu"):
        monkeypatch.setattr(getattr(torch, kind), "is_available", lambda: False)
    assert device_here() is None
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert device_here() == torch.device("xpu", 0)


def test_it_is_a_case_of_bench_with_flags_of_its_own(capsys):
    assert main(["bench"]) == 0
    assert "tune" in capsys.readouterr().out
    parser = CoreParser(prog="core")
    BenchTune().register(parser)
    assert parser.parse_args(["--rows", "1,8", "--dry-run"]).rows == "1,8"


def test_sizes_are_those_of_a_model(tmp_path):
    found = sizes_of(None, "bfloat16", "1,64")
    assert (found.rows, found.hidden, found.head_dim, found.vocabulary) == ((1, 64), 4096, 128, 128256)
    config = {"hidden_size": 24, "num_attention_heads": 3, "vocab_size": 50}
    for given in (config, {"model_type": "sees", "text_config": config}):
        (tmp_path / "config.json").write_text(json.dumps(given))
        found = sizes_of(str(tmp_path), "float16", "2")
        assert (found.hidden, found.heads, found.head_dim, found.vocabulary, found.dtype) == (24, 3, 8, 50, "float16")
        assert (found.experts, found.top_k) == (0, 0)
    mixed = {**config, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    (tmp_path / "config.json").write_text(json.dumps(mixed))
    found = sizes_of(str(tmp_path), "float16", "2")
    assert (found.experts, found.top_k, found.expert_size) == (8, 2, 16)
    (tmp_path / "config.json").write_text("[]")
    for model, rows in ((str(tmp_path), "1"), (str(tmp_path / "none"), "1"), (None, "1,a")):
        with pytest.raises(ConfigError, match=r"CORE-C104 core bench tune: the sizes of .* cannot be read"):
            sizes_of(model, "float16", rows)


def test_every_kernel_of_the_table_is_timed_and_runs(small_tiles):
    found = cases(TINY, CPU)
    assert found.keys() == OPS.keys() == tiles(CPU).keys()
    for calls in found.values():
        assert calls
        for call in calls:
            call()


@pytest.mark.parametrize("name", PARTS)
def test_candidates_are_sizes_of_the_tables(name):
    for section in tables._table(name).values():
        for kernel, values in PARTS[name].candidates.items():
            assert values.keys() <= section.get(kernel, values).keys()
    assert PARTS[name].candidates.keys() <= tables._table(name)["default"].keys()
    if name == "ops":  # of which every size is tried
        assert all(tables._table(name)["default"][kernel].keys() == values.keys() for kernel, values in OPS.items())


def test_the_fastest_sizes_are_found_and_the_table_is_as_it_was(monkeypatch):
    monkeypatch.setitem(tiles(CPU), "draw", {"tile": 4096, "lane": 8})
    monkeypatch.setitem(tiles(CPU), "norm", {"tile": 4096, "lane": 16})

    def time(call):
        sizes = tiles(CPU)[call()]
        if sizes["tile"] == 16384:
            raise RuntimeError("out of resources")
        if call() == "norm":  # nothing is much better
            return 1.0 if sizes == {"tile": 4096, "lane": 16} else 0.98
        return 1.0 + abs(sizes["tile"] - 2048) / 1000 + abs(sizes["lane"] - 4) / 10

    told = []
    draw, norm = search(
        PARTS["ops"], CPU, {"draw": [lambda: "draw"] * 2, "norm": [lambda: "norm"], "rotary": []}, time, told.append
    )
    assert told == ["timing draw of ops", "timing norm of ops"]
    assert draw.best == {"tile": 2048, "lane": 4} and draw.better and draw.ratio == pytest.approx(1 + 2.048 + 0.4)
    assert (draw.tried, draw.failed) == (20, 4) and not norm.better
    assert tiles(CPU)["draw"] == {"tile": 4096, "lane": 8}


def test_what_is_kept_replaces_single_kernels_of_the_shipped_table(home):
    shipped = tables.sizes("ops", ("default", "cuda", "cuda:9.0"))
    keep("ops", "cuda:9.0", {"draw": {"tile": 1024, "lane": 4}})
    keep("ops", "hip:gfx942", {"norm": {"tile": 2048, "lane": 32}})
    keep("ops", "cuda:9.0", {"norm": {"tile": 8192, "lane": 8}})
    tables._table.cache_clear()
    wanted = {**shipped, "draw": {"tile": 1024, "lane": 4}, "norm": {"tile": 8192, "lane": 8}}
    assert tables.sizes("ops", ("default", "cuda", "cuda:9.0")) == wanted
    assert tables.sizes("ops", ("default", "cuda", "cuda:8.0")) == shipped
    assert home.read_text().startswith("# Written by `core bench tune`") and [*home.parent.iterdir()] == [home]


@pytest.mark.parametrize("text", ["draw = [", "\xff"])
def test_a_file_that_is_no_table_is_passed_over_and_named(home, caplog, text):
    home.parent.mkdir(parents=True)
    home.write_bytes(text.encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        assert tables.sizes("ops", ("default",))["draw"]["tile"] == 4096
    assert str(home) in caplog.text and "core bench tune" in caplog.text


def test_the_interpreter_s_tiles_are_nobody_s_to_change(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep("ops", "default", {"draw": {"tile": 1, "lane": 1}})
    tables._table.cache_clear()
    assert tables.sizes("ops", ("default",))["draw"]["tile"] == 4096


def test_a_whole_run_times_prints_and_writes(home, capsys, monkeypatch):
    module = "core_plugin_kernels_triton.tune"
    monkeypatch.setattr(f"{module}.command.device_here", lambda: CPU)
    monkeypatch.setattr(tables, "sections", lambda device: ("default", "cuda:9.0"))
    monkeypatch.setattr(f"{module}.timing.milliseconds", lambda call: 1.0 / tiles(CPU)["draw"]["lane"])
    monkeypatch.setitem(tiles(CPU), "draw", {"tile": 1024, "lane": 4})
    made = PARTS["ops"]._replace(cases=lambda sizes, device: {"draw": [lambda: None]})
    monkeypatch.setitem(PARTS, "ops", made)
    arguments = Namespace(dry_run=True, model=None, dtype="float32", rows="1,3", parts="ops,experts")
    assert BenchTune().run(arguments) == 0 and not home.exists()
    assert "draw: tile 1024, lane 32 (8.00 times as fast as the table's; 20 sizes, 0 of them do not run)" in (
        out := capsys.readouterr().out
    )
    assert out.endswith("experts: the model has none, so nothing was timed.\n")
    arguments.dry_run = False
    assert BenchTune().run(arguments) == 0
    assert "wrote 1 of 1 kernels of cuda:9.0" in capsys.readouterr().out
    assert tables.user_table("ops") == {"cuda:9.0": {"draw": {"tile": 1024, "lane": 32}}}
