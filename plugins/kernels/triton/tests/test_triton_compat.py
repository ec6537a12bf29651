"""Casts and products of kernels, in the interpreter, against torch."""

import pytest
import torch
import triton
import triton.language as tl
from core_plugin_kernels_triton.compat import INTERPRETED, cast, dot, from_float8, to_float8

FLOAT8 = {True: torch.float8_e5m2, False: torch.float8_e4m3fn}


@triton.jit
def cast_kernel(x, y, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + i, cast(tl.load(x + i), y.dtype.element_ty))


@triton.jit
def to_kernel(x, y, SIZE: tl.constexpr, E5M2: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + i, to_float8(tl.load(x + i), E5M2))


@triton.jit
def from_kernel(x, y, SIZE: tl.constexpr, E5M2: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + i, from_float8(tl.load(x + i), E5M2))


@triton.jit
def dot_kernel(a, b, y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(y + m[:, None] * N + n[None, :], dot(left, right, tl.zeros([M, N], tl.float32)))


def same(found, due):
    """Equal values, signs of zeros included; not a number where that is due."""
    found, due = found.float(), due.float()
    numbers = ~due.isnan()
    assert torch.equal(numbers, ~found.isnan())
    assert torch.equal(found[numbers], due[numbers])
    assert torch.equal(found[numbers].signbit(), due[numbers].signbit())


@pytest.fixture(scope="module")
def numbers():
    """A number for every upper half of a float32, with lower halves that round up, down, and from the middle."""
    upper = torch.arange(1 << 16, dtype=torch.int32) << 16
    lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=torch.int32)
    return (upper[:, None] | lower).view(torch.float32).flatten()


def test_tests_run_in_the_interpreter():
    assert INTERPRETED.value


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_float32_is_rounded_to_nearest_even(numbers, dtype):
    y = torch.empty_like(numbers, dtype=dtype)
    cast_kernel[(6,)](numbers, y, SIZE=1 << 16)
    same(y, numbers.to(dtype))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("other", [torch.bfloat16, torch.float16, torch.float32])
def test_every_number_of_16_bits_is_cast(dtype, other):
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(dtype)
    y = torch.empty_like(x, dtype=other)
    cast_kernel[(1,)](x, y, SIZE=1 << 16)
    same(y, x.float().to(other))


@pytest.mark.parametrize("e5m2", FLOAT8)
def test_float8_is_rounded_to_nearest_even_and_bounded(numbers, e5m2):
    y = torch.empty_like(numbers, dtype=torch.uint8)
    to_kernel[(6,)](numbers, y, SIZE=1 << 16, E5M2=e5m2)
    most = torch.finfo(FLOAT8[e5m2]).max
    same(y.view(FLOAT8[e5m2]), numbers.clamp(-most, most).to(FLOAT8[e5m2]))


@pytest.mark.parametrize("e5m2", FLOAT8)
def test_every_float8_is_read(e5m2):
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    y = torch.empty(256, dtype=torch.float16)
    from_kernel[(1,)](x, y, SIZE=256, E5M2=e5m2)
    same(y, x.view(FLOAT8[e5m2]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_are_sums_in_float32(dtype):
    torch.manual_seed(0)
    a, b, y = torch.randn(16, 64).to(dtype), torch.randn(64, 32).to(dtype), torch.empty(16, 32)
    dot_kernel[(1,)](a, b, y, M=16, N=32, K=64)
    torch.testing.assert_close(y.double(), a.double() @ b.double(), rtol=0, atol=2e-5)
