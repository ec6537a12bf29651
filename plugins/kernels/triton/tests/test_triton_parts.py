"""Pieces of the attention kernels: rows of tiles, splits, offsets; the tables of tiles; which cards are served."""

import tomllib
from importlib import resources

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from core_plugin_kernels_triton import tables
from core_plugin_kernels_triton.attention.fits import fits
from core_plugin_kernels_triton.attention.form import form_of
from core_plugin_kernels_triton.attention.keys import cache_offsets
from core_plugin_kernels_triton.attention.merge import span_of
from core_plugin_kernels_triton.attention.prompts import row_of
from core_plugin_kernels_triton.attention.shared import split_size
from core_plugin_kernels_triton.attention.spec import TRITON
from core_plugin_kernels_triton.attention.tiles import tiles_for
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.tables import sections, sizes

from core.api.attention import AttentionSite
from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult

CARDS = [
    ("default",),
    *[("default", "cuda", f"cuda:{one}") for one in ("8.0", "8.6", "8.9", "9.0", "10.0", "12.0")],
    *[("default", "hip", f"hip:{one}") for one in ("gfx90a", "gfx942", "gfx950", "gfx1100")],
    ("default", "xpu", "xpu:pvc"),
    ("default", "interpreter"),
]


@triton.jit
def rows_kernel(starts, found, rows, QUERIES: tl.constexpr):
    tile = tl.program_id(0)
    tl.store(found + tile, row_of(tile, starts, rows, QUERIES))


@triton.jit
def splits_kernel(
    lengths, found, W: tl.constexpr, C: tl.constexpr, N: tl.constexpr, SPLIT: tl.constexpr, S: tl.constexpr
):
    i = tl.program_id(0)
    length = tl.load(lengths + i)
    least, begin = span_of(length - 1, W, C, N)
    size = split_size(length - begin, SPLIT, S)
    tl.store(found + i * 3, least)
    tl.store(found + i * 3 + 1, begin)
    tl.store(found + i * 3 + 2, size)


@triton.jit
def offsets_kernel(blocks, places, found, block_stride, token_stride, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    at = cache_offsets(tl.load(blocks + i), tl.load(places + i), block_stride, token_stride, 16)
    tl.store(found + i, at)


@pytest.mark.parametrize("counts", [[5], [1, 1, 1], [0, 9, 0, 4, 1, 8, 0], [4, 4, 4], [33, 1, 2]])
def test_every_tile_of_every_row_is_found_once(counts):
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    tiles = int(starts[-1]) // 4 + len(counts)
    found = torch.empty(tiles, dtype=torch.int32)
    rows_kernel[(tiles,)](torch.from_numpy(starts), found, len(counts), QUERIES=4)
    mine = [(row, tile - (starts[row] // 4 + row)) for tile, row in enumerate(found.tolist())]
    due = [(row, piece) for row, count in enumerate(counts) for piece in range(-(-count // 4))]
    assert [one for one in mine if one[1] * 4 < counts[one[0]]] == due


@pytest.mark.parametrize(("window", "chunk"), [(None, None), (20, None), (None, 24), (9, 24)])
def test_splits_cover_what_a_row_sees_and_depend_on_its_length_alone(window, chunk):
    site = AttentionSite(0, 2, 1, 16, 0.25, window, chunk=chunk)
    form = form_of(site, 16, torch.float32, tiles_for(torch.device("cpu"), 64))._replace(few_n=8, split=16, splits=4)
    lengths = torch.tensor([1, 7, 8, 9, 16, 17, 64, 65, 100, 129, 500], dtype=torch.int32)
    found = torch.empty(len(lengths), 3, dtype=torch.int32)
    splits_kernel[(len(lengths),)](
        lengths, found, W=form.window, C=form.chunk, N=form.few_n, SPLIT=form.split, S=form.splits
    )
    for length, (least, begin, size) in zip(lengths.tolist(), found.tolist()):
        due = max(0, length - (window or length), (length - 1) // chunk * chunk if chunk else 0)
        assert least == due and begin == least // 8 * 8 and size % 16 == 0
        assert 1 <= -(-(length - begin) // size) <= form.splits_of(length) <= form.splits_of(10 * length) <= 4


def test_offsets_are_of_64_bits():
    """Blocks behind 2 ** 31 elements: a product of 32 bits would be negative."""
    blocks = torch.tensor([0, 1, 70_000, 2**31 - 1], dtype=torch.int32)
    places = torch.tensor([0, 17, 15, 31], dtype=torch.int32)
    found = torch.empty(4, dtype=torch.int64)
    offsets_kernel[(1,)](blocks, places, found, 40_000, 2_000, COUNT=4)
    assert found.tolist() == [0, 42_000, 70_000 * 40_000 + 30_000, (2**31 - 1) * 40_000 + 30_000]


def test_launches_are_torch_operations_in_the_interpreter_alone(monkeypatch):
    """What records the operations of a step sees them there; on a device nothing stands between."""

    def launch_of_a_test(x, number):
        x.fill_(number)

    operation = launch("Tensor(a!) x, float number")(launch_of_a_test)
    assert isinstance(operation, torch._ops.OpOverload)
    operation(found := torch.zeros(3), 2.5)
    assert found.tolist() == [2.5] * 3
    monkeypatch.setattr("core_plugin_kernels_triton.launch._LIBRARY", None)
    assert launch("Tensor(a!) x, float number")(launch_of_a_test) is launch_of_a_test


@pytest.mark.parametrize("names", CARDS, ids=lambda names: names[-1])
def test_tables_have_tiles_for_every_card(names):
    table = sizes("attention", names)
    powers = [table["splits"], table["stored"], table["merged"]]
    for name, one in table.items():
        if isinstance(one, dict):
            powers += [one.get("m", 16), one["n"], one["warps"], one.get("split", 1), int(name.partition("_")[2])]
            assert name.startswith("prompt_") or one["split"] % one["n"] == 0
    assert all(one > 0 and one & (one - 1) == 0 for one in powers)


def test_every_section_of_a_table_is_some_cards():
    text = resources.files(tables).joinpath("attention.toml").read_text()
    assert set(tomllib.loads(text)) <= {name for names in CARDS for name in names}


def test_sections_are_those_of_the_device(monkeypatch):
    assert sections(torch.device("cpu")) == ("default", "interpreter")
    monkeypatch.setattr("core_plugin_kernels_triton.tables.INTERPRETED", tl.constexpr(False))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert sections(torch.device("cuda")) == ("default", "cuda", "cuda:9.0")
    monkeypatch.setattr(torch.version, "hip", "6.4")
    properties = type("Properties", (), {"gcnArchName": "gfx942:sramecc+:xnack-", "architecture": "pvc"})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert sections(torch.device("cuda")) == ("default", "hip", "hip:gfx942")
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: properties)
    assert sections(torch.device("xpu")) == ("default", "xpu", "xpu:pvc")


@pytest.mark.parametrize(
    ("device", "capability", "arch", "ok"),
    [
        ("cuda", (7, 5), "", False),
        ("cuda", (8, 0), "", True),
        ("cuda", (12, 0), "", True),
        ("cuda", (), "gfx90a", True),
        ("cuda", (6, 0), "gfx600", True),
        ("xpu", (), "", True),
    ],
)
def test_cards_that_triton_does_not_compile_for_are_refused_by_facts(device, capability, arch, ok):
    shape = {"head_dim": 64, "num_heads": 4, "num_kv_heads": 2, "block_size": 16}
    request = AttentionRequest(device_type=device, dtype="bfloat16", kv_dtype="bfloat16", **shape)
    assert request.check(TRITON).ok
    verdict = fits(request, ProbeResult(available=True, capability=capability, facts={"arch": arch} if arch else {}))
    assert verdict.ok == ok and (ok or "7.5" in verdict.reasons[0])
