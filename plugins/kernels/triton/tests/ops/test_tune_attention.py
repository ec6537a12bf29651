"""`core bench tune` for attention: what it times, and that what it finds is what layers use afterwards."""

from dataclasses import replace

import pytest
import torch
import triton.language as tl
from core_plugin_kernels_triton import tables
from core_plugin_kernels_triton.attention.tiles import tiles, tiles_of
from core_plugin_kernels_triton.tune import attention_cases
from core_plugin_kernels_triton.tune.cases import Sizes
from core_plugin_kernels_triton.tune.command import sizes_of
from core_plugin_kernels_triton.tune.parts import PARTS
from core_plugin_kernels_triton.tune.search import search
from core_plugin_kernels_triton.tune.store import keep

CPU = torch.device("cpu")
TINY = Sizes(rows=(1,), hidden=64, intermediate=32, heads=4, kv_heads=2, head_dim=16, vocabulary=37, dtype="float32")
HOPPER = ("default", "cuda", "cuda:9.0")


@pytest.fixture
def short(monkeypatch):
    """Have steps of few tokens."""
    monkeypatch.setattr(attention_cases, "PROMPTS", ((1, 40), (2, 24)))
    monkeypatch.setattr(attention_cases, "SINGLE", ((3, 20), (1, 300)))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache folder, of which tables of cards are read as they are on a card."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "INTERPRETED", tl.constexpr(False))
    tables._table.cache_clear()
    yield
    tables._table.cache_clear()


@pytest.mark.parametrize(
    ("size", "dtype", "kernels"),
    [
        (16, "float32", ["prompt_128", "few_256"]),
        (80, "bfloat16", ["prompt_256", "few_256"]),
        (256, "float16", ["prompt_512", "few_512"]),
        (512, "float32", ["prompt_1024", "few_1024"]),
    ],
)
def test_the_entries_of_the_model_s_heads_are_timed(short, size, dtype, kernels):
    found = attention_cases.cases(replace(TINY, head_dim=size, dtype=dtype), CPU)
    assert [*found] == kernels and all(name in PARTS["attention"].candidates for name in found)
    assert [len(calls) for calls in found.values()] == [2, 2]


def test_every_case_runs_with_the_tiles_of_the_moment(short, monkeypatch):
    launched = []
    for name in ("attend_prompts", "attend_few"):
        own = getattr(attention_cases, name)

        def call(*given, own=own):
            launched.append(given[-1])
            own(*given)
            assert given[5].isfinite().all() and given[5].any()

        monkeypatch.setattr(attention_cases, name, call)
    found = attention_cases.cases(TINY, CPU)
    monkeypatch.setitem(tiles(CPU), "prompt_128", {"m": 16, "n": 16, "warps": 1, "stages": 1})
    monkeypatch.setitem(tiles(CPU), "few_256", {"n": 32, "split": 64, "warps": 1, "stages": 1})
    for calls in found.values():
        for one in calls:
            one()
    assert [(one.prompt_m, one.prompt_n) for one in launched[:2]] == [(16, 16)] * 2
    assert [(one.few_n, one.split) for one in launched[2:]] == [(32, 64)] * 2


def test_latent_attention_has_no_cases(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 24, "num_attention_heads": 3, "vocab_size": 50, "kv_lora_rank": 8}'
    )
    sizes = sizes_of(str(tmp_path), "float16", "1")
    assert sizes.latent and attention_cases.cases(sizes, CPU) == {}


def test_the_fastest_tile_is_found_and_what_does_not_fit_is_passed_over(monkeypatch):
    part = PARTS["attention"]
    before = {"m": 128, "n": 128, "warps": 8, "stages": 3}
    monkeypatch.setitem(part.tiles(CPU), "prompt_256", before)

    def time(call):
        sizes = part.tiles(CPU)["prompt_256"]
        if sizes["n"] * sizes["stages"] > 256 and sizes != before:
            raise RuntimeError("out of resources: shared memory")
        return 1.0 + abs(sizes["n"] - 64) + sizes["warps"] / 4 + abs(sizes["stages"] - 3)

    (found,) = search(part, CPU, {"prompt_256": [lambda: None]}, time, lambda text: None)
    assert (found.best["n"], found.best["warps"], found.best["stages"]) == (64, 4, 3) and found.better
    assert (found.tried, found.failed) == (48, 11)
    assert part.tiles(CPU)["prompt_256"] == before


@pytest.mark.parametrize("kernel", ["prompt", "few"])
def test_what_is_kept_is_what_layers_use(home, kernel):
    """For heads of its size on its card; all others keep theirs."""
    shipped = tables.sizes("attention", HOPPER)
    tile = {**shipped[f"{kernel}_256"], "n": 32, "warps": 2, "stages": 4}
    if kernel == "few":
        tile["split"] = 1024
    keep("attention", "cuda:9.0", {f"{kernel}_256": tile})
    tables._table.cache_clear()
    found = tables.sizes("attention", HOPPER)
    chosen = getattr(tiles_of(found, 256), kernel)
    assert (chosen.n, chosen.warps, chosen.stages) == (32, 2, 4)
    assert tiles_of(found, 256).split == (1024 if kernel == "few" else 256)
    assert tiles_of(found, 512) == tiles_of(shipped, 512)
    assert tables.sizes("attention", ("default", "cuda", "cuda:8.0"))[f"{kernel}_256"] != tile
