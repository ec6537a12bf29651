"""`core bench tune` for products and experts: what it times, and that what it finds is what products use afterwards."""

import pytest
import torch
import triton.language as tl
from core_plugin_kernels_triton import tables
from core_plugin_kernels_triton.experts.tiles import stored_tile
from core_plugin_kernels_triton.products import layers
from core_plugin_kernels_triton.products.cards import Card
from core_plugin_kernels_triton.products.tiles import tiles, tiling
from core_plugin_kernels_triton.tune import expert_cases, product_cases
from core_plugin_kernels_triton.tune.cases import Sizes
from core_plugin_kernels_triton.tune.command import parts_of
from core_plugin_kernels_triton.tune.parts import PARTS
from core_plugin_kernels_triton.tune.search import search
from core_plugin_kernels_triton.tune.store import keep

from core.api import ConfigError

CPU = torch.device("cpu")
TINY = Sizes(
    rows=(1, 40),
    hidden=256,
    intermediate=32,
    heads=2,
    kv_heads=1,
    head_dim=16,
    vocabulary=37,
    dtype="float32",
    experts=5,
    top_k=2,
    expert_size=256,
)


def test_every_kernel_of_products_has_cases():
    found = product_cases.cases(TINY, CPU)
    assert found.keys() == PARTS["products"].candidates.keys() == tiles(CPU).keys() - {"least"}
    # Three layers in four forms, of which blocks of 256 and a layer of 32 inputs do not go together.
    assert len(found["few"]) == len(found["many"]) == 11 and len(found["lookup"]) == 2 * 4
    for call in (found["few"][0], found["many"][0], found["lookup"][-1], found["scaled"][0]):
        assert call().isfinite().shape[0] in TINY.rows


def test_every_kernel_of_experts_has_cases():
    found = expert_cases.cases(TINY, CPU)
    assert found.keys() == PARTS["experts"].candidates.keys()
    assert len(found["stored"]) == 2 * 2 * 4 and len(found["multiply"]) == 2 * 2
    for kernel, calls in found.items():
        assert calls, kernel
        calls[0]()


@pytest.mark.exhaustive
@pytest.mark.parametrize("module", [product_cases, expert_cases], ids=["products", "experts"])
def test_every_case_runs(module):
    for calls in module.cases(TINY, CPU).values():
        for call in calls:
            call()


def test_cards_without_products_in_runs_with_scales_have_no_cases_of_them(monkeypatch):
    for module in (product_cases, expert_cases, layers):
        monkeypatch.setattr(module, "card", lambda device: Card(float8=False))
    assert product_cases.cases(TINY, CPU)["scaled"] == expert_cases.cases(TINY, CPU)["scaled"] == []


def test_of_large_layers_some_experts_are_timed(monkeypatch):
    monkeypatch.setattr(expert_cases, "MOST_BYTES", 3 * 3 * 256 * 256 * 2)
    routed = expert_cases._Routed(TINY, 40, CPU)
    assert routed.experts == 3 and int(routed.ids.max()) == 2
    assert expert_cases._experts(TINY) >= TINY.top_k


@pytest.mark.parametrize("name, kernel", [("products", "few"), ("experts", "stored")])
def test_the_fastest_sizes_are_found_and_all_others_stay(name, kernel, monkeypatch):
    part = PARTS[name]
    before = {**part.tiles(CPU)[kernel], "n": 128, "warps": 8, "stages": 2}
    monkeypatch.setitem(part.tiles(CPU), kernel, before)

    def time(call):
        sizes = part.tiles(CPU)[kernel]
        if sizes["stages"] == 4:
            raise RuntimeError("out of resources")
        return 1.0 + sizes["warps"] + (sizes["n"] != 64)

    (found,) = search(part, CPU, {kernel: [lambda: None]}, time, lambda text: None)
    assert found.ratio == pytest.approx(2) and found.better
    assert (found.best["warps"], found.best["n"]) == (4, 64) and found.best.keys() == before.keys()
    rest = before.keys() - part.candidates[kernel].keys()
    assert {key: found.best[key] for key in rest} == {key: before[key] for key in rest}
    assert found.failed and part.tiles(CPU)[kernel] == before


def test_what_is_kept_is_what_products_and_experts_use(tmp_path, monkeypatch):
    """Under the name of a card, in files of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "INTERPRETED", tl.constexpr(False))
    tables._table.cache_clear()
    try:
        of_card = ("default", "cuda", "cuda:9.0")
        few = {**tables.sizes("products", of_card)["few"], "n": 32, "warps": 8}
        stored = {**tables.sizes("experts", of_card)["stored"], "m": 16}
        keep("products", "cuda:9.0", {"few": few})
        keep("experts", "cuda:9.0", {"stored": stored})
        tables._table.cache_clear()
        chosen = tiling(tables.sizes("products", of_card), 1, 4096, 4096, 16, alike=False)
        assert (chosen.n, chosen.warps) == (32, 8)
        other = tiling(tables.sizes("products", ("default", "cuda", "cuda:8.0")), 1, 4096, 4096, 16, alike=False)
        assert (other.n, other.warps) == (64, 4)
        monkeypatch.setattr(
            "core_plugin_kernels_triton.experts.tiles.tiles", lambda device: tables.sizes("experts", of_card)
        )
        assert stored_tile(CPU, 4096, 4096, 16).m == 16
        assert {path.name for path in (tmp_path / "core" / "triton").iterdir()} == {"products.toml", "experts.toml"}
    finally:
        tables._table.cache_clear()


def test_parts_are_chosen_by_name():
    assert parts_of("ops,products,experts,attention") == [*PARTS] and parts_of("experts") == ["experts"]
    with pytest.raises(ConfigError, match=r"CORE-C104 .* --parts names 'latent'.*Tables: ops, products"):
        parts_of("ops,latent")
