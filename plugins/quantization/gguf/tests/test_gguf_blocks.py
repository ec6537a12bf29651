"""Block formats against the gguf library's reference, bit for bit."""

import gguf
import numpy as np
import pytest
import torch
from core_plugin_gguf.blocks import CHUNK, DECODERS, _q1_0, _q2_0, decode
from core_plugin_gguf.formats import DECODABLE, FLOATS
from core_plugin_gguf.kinds import SIZES, kind_named, kind_of
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


OURS = {kind for kind in DECODABLE if kind.name in ("Q1_0", "Q2_0")}
"""Types that no release of the library decodes."""


def random_blocks(kind, count, columns):
    """Rows of random blocks: any byte is a valid one, but for the scales."""
    rng = np.random.default_rng(int(kind))
    block, block_bytes = SIZES[kind]
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
@pytest.mark.parametrize("kind", sorted(DECODABLE - set(FLOATS) - {Kind.IQ1_M} - OURS))
def test_random_blocks(kind):
    raw = random_blocks(kind, 6, 512)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(raw, kind)
        values = decode(torch.from_numpy(raw), kind, 512, torch.float32)
    np.testing.assert_array_equal(values.numpy(), expected.reshape(6, 512))
    assert np.isfinite(expected).mean() > 0.9


def test_every_decodable_type_decodes():
    for kind in DECODABLE:
        block, block_bytes = SIZES[kind]
        raw = torch.zeros(3, 2 * block_bytes, dtype=torch.uint8)
        assert decode(raw, kind, 2 * block, torch.bfloat16).shape == (3, 2 * block)
    assert set(DECODERS) <= DECODABLE


def test_large_tensors_are_decoded_in_pieces():
    rows = 2 * CHUNK // 256 + 3
    raw = random_blocks(Kind.Q4_1, rows, 256)
    values = decode(torch.from_numpy(raw), Kind.Q4_1, 256, torch.bfloat16)
    expected = torch.from_numpy(gguf.quants.dequantize(raw, Kind.Q4_1)).to(torch.bfloat16)
    assert torch.equal(values, expected.view(rows, 256))


@pytest.mark.covers("QUANT-12")
def test_bits_are_signs():
    """Q1_0: a float16, and 128 bits, the lowest of a byte first; 1 is the number, 0 its negative."""
    blocks = np.concatenate(
        (np.array([2.5, -3], np.float16).view(np.uint8).reshape(2, 2), [[0b00000101, *[0] * 15]] * 2), 1
    )
    values = _q1_0(torch.from_numpy(blocks.astype(np.uint8)))
    assert values.shape == (2, 128) and values[:, :4].tolist() == [[2.5, -2.5, 2.5, -2.5], [-3, 3, -3, 3]]
    assert (values[0, 4:] == -2.5).all()


@pytest.mark.covers("QUANT-12")
def test_pairs_of_bits_are_from_minus_one_to_two():
    """Q2_0: a float16, and 64 pairs of bits, the lowest of a byte first."""
    blocks = np.concatenate(
        (np.array([0.5], np.float16).view(np.uint8).reshape(1, 2), [[0b11100100, *[0b01010101] * 15]]), 1
    )
    values = _q2_0(torch.from_numpy(blocks.astype(np.uint8)))
    assert values.shape == (1, 64) and values[0, :4].tolist() == [-0.5, 0, 0.5, 1] and not values[0, 4:].any()


@pytest.mark.covers("QUANT-12")
@pytest.mark.parametrize(("number", "name"), [(2, "Q4_0"), (40, "NVFP4"), (41, "Q1_0"), (42, "Q2_0")])
def test_types_have_the_numbers_of_ggml_whether_the_library_knows_them_or_not(number, name):
    assert kind_of(number).name == name and kind_named(name) == number and number in SIZES and number in DECODABLE


def test_a_number_that_nobody_knows_is_no_type():
    with pytest.raises(ValueError, match="9999"):
        kind_of(9999)
