"""Weights are packed some rows at a time, and memory of programs is there when it is used."""

import mmap

import pytest
import torch
from core_plugin_cpu.native import blocks, library, packed
from core_plugin_cpu.native.arena import reserve
from core_plugin_cpu.native.packed import PANEL, Format, packed_bytes

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")


@pytest.mark.parametrize("rows", [1, PANEL, 5 * PANEL - 3])
@pytest.mark.parametrize("kind", [Format.NVFP4, Format.Q1_0, Format.Q2_0])
def test_blocks_that_torch_reads_are_packed_a_few_rows_at_a_time(monkeypatch, kind, rows):
    layout = blocks.FORMATS[kind.name]
    inputs = 512
    generator = torch.Generator().manual_seed(rows)
    raw = torch.randint(0, 256, (rows, inputs // layout.values * layout.stored), generator=generator).to(torch.uint8)
    whole = packed.pack_blocks(raw, kind, inputs)
    seen = []
    pack_codes = packed.pack_codes
    monkeypatch.setattr(packed, "SOME", 2 * PANEL)
    monkeypatch.setattr(packed, "pack_codes", lambda *args: (seen.append(args[2]), pack_codes(*args))[1])
    parts = packed.pack_blocks(raw, kind, inputs)
    assert torch.equal(parts.data, whole.data) and parts.nbytes == packed_bytes(kind, rows, inputs)
    assert sum(seen) == rows and max(seen) <= 2 * PANEL


@pytest.mark.parametrize("size", [0, 1, 5 * mmap.PAGESIZE + 7])
def test_reserved_memory_is_zeros_from_the_start_of_a_page(size):
    memory = reserve(size)
    assert memory.dtype == torch.uint8 and memory.shape == (size,) and not memory.any()
    memory.fill_(3)
    assert int(memory.sum()) == 3 * size and (not size or memory.data_ptr() % mmap.PAGESIZE == 0)
