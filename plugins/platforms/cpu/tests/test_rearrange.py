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


def lines_of(codes, bits):
    """The layout of `csrc/cpu/gemm/blocks.h` in torch: `codes (rows, blocks, 32)` of whole panels."""
    rows, count, _ = codes.shape
    grid = codes.view(rows // PANEL, PANEL, count, 8, 4).permute(0, 2, 3, 1, 4)  # panel, block, line, row, four codes
    if bits == 8:
        return grid.flatten(2)

    def merged(numbers, width):
        shifts = torch.arange(0, 8, width, dtype=torch.uint8).view(-1, 1, 1)
        return (numbers << shifts).sum(dim=2, dtype=torch.uint8).flatten(2)

    if bits == 1:
        return merged(grid, 1)
    if bits == 2:
        return torch.cat((merged(grid[:, :, :4], 2), merged(grid[:, :, 4:], 2)), dim=2)
    low, high = grid & 15, grid >> 4
    parts = [(low[:, :, :4] | low[:, :, 4:] << 4).flatten(2)]
    if bits == 5:
        parts.append(merged(high, 1))
    if bits == 6:
        parts += [merged(high[:, :, :4], 2), merged(high[:, :, 4:], 2)]
    return torch.cat(parts, dim=2)


@pytest.mark.parametrize("bits", [1, 2, 4, 5, 6, 8])
@pytest.mark.parametrize("rows", [1, 32, 41])
def test_codes(bits, rows):
    codes = torch.randint(0, 2**bits, (rows, 5, 32), dtype=torch.uint8)
    whole = torch.nn.functional.pad(codes, (0, 0, 0, 0, 0, -rows % PANEL))
    assert torch.equal(rearrange.codes(codes, bits), lines_of(whole, bits))


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_transposed_weight_is_packed_as_its_copy(dtype):
    weight = torch.randn(70, 33).to(dtype).T
    assert torch.equal(packed.pack(weight).data, packed.pack(weight.contiguous()).data)
