"""Weights in panels: native code writes, byte for byte, what the same in torch gives."""

import pytest
import torch
from core_plugin_cpu.native import blocks, library, packed, rearrange
from core_plugin_cpu.native.packed import PANEL, Format

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())


@pytest.mark.parametrize("name", blocks.FORMATS)
@pytest.mark.parametrize("rows", [1, 16, 39])
def test_blocks_of_files(name, rows):
    layout, kind, inputs = blocks.FORMATS[name], Format[name], 768
    raw = torch.randint(0, 256, (rows, inputs // layout.values * layout.stored + 5), dtype=torch.uint8)[:, :-5]
    out = torch.full((packed.packed_bytes(kind, rows, inputs),), 255, dtype=torch.uint8)
    packed.pack_blocks(raw, kind, inputs, out)
    codes = layout.read(raw.reshape(rows, -1, layout.stored))
    assert torch.equal(out, packed.pack_codes(codes, kind, rows, inputs).data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize(("rows", "inputs"), [(1, 32), (16, 64), (37, 100), (48, 192)])
def test_words_of_rows(dtype, rows, inputs):
    count = 4 // dtype.itemsize
    weight = torch.randint(-100, 100, (rows, inputs + 4)).to(dtype)[:, :-4]
    out = torch.full((-(-rows // PANEL), inputs // count + 2, PANEL, 4), 255, dtype=torch.uint8)
    rearrange.words(weight.view(torch.uint8), out)
    expected = torch.zeros(len(out) * PANEL, inputs, dtype=dtype)
    expected[:rows] = weight
    lines = expected.view(len(out), PANEL, -1, count).transpose(1, 2).contiguous().view(torch.uint8)
    assert torch.equal(out[:, : inputs // count], lines)
    assert (out[:, inputs // count :] == 255).all()
