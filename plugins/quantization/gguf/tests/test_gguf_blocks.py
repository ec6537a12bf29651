"""Block formats against the gguf library's reference, bit for bit."""

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.blocks import CHUNK, DECODERS, decode
from core_plugin_gguf.formats import DECODABLE, FLOATS
from gguf import GGMLQuantizationType as Kind

HALVES = {
    Kind.Q4_1: (0, 2),
    Kind.Q5_1: (0, 2),
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q4_K: (0, 2),
    Kind.Q5_K: (0, 2),
    Kind.Q6_K: (208,),
}
"""Byte offsets of the float16 scales, which random bytes must not fill with infinities."""


def random_blocks(kind, count, columns):
    """Rows of random blocks: any byte is a valid one, but for the scales."""
    rng = np.random.default_rng(int(kind))
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (count * columns // block, block_bytes), dtype=np.uint8)
    for at in HALVES.get(kind, (0,)):
        scales = rng.standard_normal((len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(count, -1)


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0])
def test_quantized_data(kind):
    data = np.random.default_rng(3).standard_normal((24, 96), dtype=np.float32)
    raw = np.ascontiguousarray(gguf.quants.quantize(data, kind)).view(np.uint8)
    values = decode(torch.from_numpy(raw), kind, 96, torch.float32)
    expected = gguf.quants.dequantize(raw, kind).reshape(24, 96)
    np.testing.assert_array_equal(values.numpy(), expected)
    assert np.abs(values.numpy() - data).max() < 0.35  # and not only equal, but near what was stored


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize("kind", sorted(DECODABLE - set(FLOATS) - {Kind.IQ1_M}))
def test_random_blocks(kind):
    raw = random_blocks(kind, 6, 512)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, kind)
        values = decode(torch.from_numpy(raw), kind, 512, torch.float32)
    np.testing.assert_array_equal(values.numpy(), expected.reshape(6, 512))
    assert np.isfinite(expected).mean() > 0.9


def test_every_decodable_type_decodes():
    for kind in DECODABLE:
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        raw = torch.zeros(3, 2 * block_bytes, dtype=torch.uint8)
        assert decode(raw, kind, 2 * block, torch.bfloat16).shape == (3, 2 * block)
    assert set(DECODERS) <= DECODABLE


def test_large_tensors_are_decoded_in_pieces():
    rows = 2 * CHUNK // 256 + 3
    raw = random_blocks(Kind.Q4_1, rows, 256)
    values = decode(torch.from_numpy(raw), Kind.Q4_1, 256, torch.bfloat16)
    expected = torch.from_numpy(gguf.quants.dequantize(raw, Kind.Q4_1)).to(torch.bfloat16)
    assert torch.equal(values, expected.view(rows, 256))
