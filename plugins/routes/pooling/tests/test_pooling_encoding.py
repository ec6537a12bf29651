"""Vectors as bytes and back, in every format."""

import base64
import struct
import sys

import numpy as np
import pytest
from core_plugin_pooling.encoding import EMBED_DTYPES, decode, encode, to_base64, to_bytes

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.0**-6, -(2.0**-9), 448.0, -57344.0, 1e-30, 3.14159, -0.1]
ERRORS = {"float32": 0.0, "float16": 2**-11, "bfloat16": 2**-8, "fp8_e4m3": 2**-4, "fp8_e5m2": 2**-3}


@pytest.fixture
def vector():
    return np.random.default_rng(0).normal(size=257).astype(np.float32)


@pytest.mark.covers("POOL-01")
@pytest.mark.parametrize("dtype", EMBED_DTYPES)
@pytest.mark.parametrize("endianness", ["native", "little", "big"])
def test_what_was_encoded_can_be_decoded(dtype, endianness, vector):
    data = encode(vector, dtype, endianness)
    assert len(data) == len(vector) * EMBED_DTYPES[dtype].itemsize
    found = decode(data, dtype, endianness)
    np.testing.assert_allclose(found, vector, rtol=ERRORS[dtype], atol=2.0**-10 if "fp8" in dtype else 1e-7)
    assert encode(found, dtype, endianness) == data  # exact from then on


@pytest.mark.parametrize("dtype", EMBED_DTYPES)
def test_byte_orders_are_mirror_images(dtype, vector):
    size = EMBED_DTYPES[dtype].itemsize
    little, big = encode(vector, dtype, "little"), encode(vector, dtype, "big")
    swapped = b"".join(little[i : i + size][::-1] for i in range(0, len(little), size))
    assert swapped == big
    assert encode(vector, dtype) == (little if sys.byteorder == "little" else big)


@pytest.mark.covers("POOL-01")
def test_base64_of_float32_is_what_numpy_reads(vector):
    text = to_base64(vector, "float32", "little")
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(text), "<f4"), vector)
    assert encode(np.float32([1.0]), "float32", "big") == struct.pack(">f", 1.0)
    assert encode(np.float32([1.0]), "bfloat16", "big") == b"\x3f\x80"
    assert encode(np.float32([1.0]), "fp8_e4m3") == b"\x38"
    assert encode(np.float32([-1.0]), "fp8_e5m2") == b"\xbc"


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "bfloat16"), ("float16", "float16")])
@pytest.mark.parametrize("values", [SPECIAL, np.linspace(-3, 3, 1001).tolist()])
def test_two_byte_formats_round_as_torch_does(dtype, name, values):
    torch = pytest.importorskip("torch")
    expected = torch.tensor(values).to(getattr(torch, name)).view(torch.int16).numpy().tobytes()
    assert encode(np.float32(values), dtype, "little") == expected


@pytest.mark.parametrize(("dtype", "name"), [("fp8_e4m3", "float8_e4m3fn"), ("fp8_e5m2", "float8_e5m2")])
def test_one_byte_formats_round_as_torch_does(dtype, name):
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name)
    codes = torch.arange(256, dtype=torch.uint8)
    every = codes.view(kind).float().numpy()
    finite = np.isfinite(every)
    assert encode(every[finite], dtype) == codes.numpy()[finite].tobytes()
    np.testing.assert_array_equal(decode(codes.numpy().tobytes(), dtype)[finite], every[finite])
    # Between two numbers, and in the very middle, where the even code wins.
    values = np.unique(np.concatenate([every[finite], (every[finite][:-1] + every[finite][1:]) / 2]))
    values = np.concatenate([values, values * 1.01])
    values = values[np.abs(values) <= np.abs(every[finite]).max()].astype(np.float32)
    expected = torch.from_numpy(values).to(kind).view(torch.uint8).numpy().tobytes()
    assert encode(values, dtype) == expected


@pytest.mark.parametrize("dtype", [name for name in EMBED_DTYPES if name != "float32"])
def test_what_is_too_large_becomes_the_largest_finite_number(dtype):
    found = decode(encode(np.float32([3e38, -3e38]), dtype), dtype)
    assert np.isfinite(found).all()
    assert found[0] == -found[1] > 400
    assert np.isnan(decode(encode(np.float32([np.nan]), dtype), dtype)).all()


def test_bytes_say_where_each_vector_is():
    vectors = [np.ones((2, 3), np.float32), np.zeros(4, np.float32)]
    data, items = to_bytes(vectors, "float16", "big")
    assert [(item["index"], item["start"], item["end"], item["shape"]) for item in items] == [
        (0, 0, 12, [2, 3]),
        (1, 12, 20, [4]),
    ]
    assert {(item["embed_dtype"], item["endianness"]) for item in items} == {("float16", "big")}
    for vector, item in zip(vectors, items, strict=True):
        part = decode(data[item["start"] : item["end"]], "float16", "big")
        np.testing.assert_array_equal(part.reshape(item["shape"]), vector)


def test_a_number_that_ends_early_is_told():
    with pytest.raises(ValueError, match="multiple"):
        decode(b"123", "float32")
