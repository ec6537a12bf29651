"""Packed matrix products against float64, for every format, instruction set and tail."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from core_plugin_cpu.native import blocks, gemm, library, packed
from core_plugin_cpu.native.gemm import Format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BLOCK_FORMATS = [kind for kind in Format if kind.name in blocks.FORMATS]
MINIMUM = {"Q4_1", "Q5_1", "Q4_K", "Q5_K"}

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

small = settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
shapes = st.tuples(st.integers(0, 70), st.integers(1, 150), st.integers(1, 200))
dtypes = st.sampled_from((torch.float32, torch.bfloat16))


def assert_close(y, exact, tolerance):
    """Errors are relative to the largest result: sums of many terms cancel."""
    assert y.shape == exact.shape
    if y.numel():
        assert (y.double() - exact).abs().max() <= tolerance * exact.abs().max().clamp(min=1e-6)


def per_row_int8(x, dim=-1):
    """Activations as W8A8 sees them: one scale a row."""
    scale = x.float().abs().amax(dim, keepdim=True) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return torch.round(x.float() / scale).double() * scale.double()


def per_block_int8(x):
    """Activations as block formats see them: one scale for 32 inputs."""
    return per_row_int8(x.unflatten(-1, (-1, 32))).flatten(-2)


def stored_blocks(kind, n, k):
    """Random bytes with scales that are numbers."""
    layout = blocks.FORMATS[kind.name]
    raw = torch.randint(0, 256, (n, k // layout.values, layout.stored), dtype=torch.uint8)
    for at in (208,) if kind == Format.Q6_K else (0, 2) if kind.name in MINIMUM else (0,):
        half = (torch.rand(n, k // layout.values, 1) - 0.5).half() / 4
        raw[..., at : at + 2] = half.view(torch.uint8)
    return raw.flatten(1)


def decoded(raw, kind, k):
    """The values by ggml's reference, float64."""
    quants = pytest.importorskip("gguf.quants")
    constants = pytest.importorskip("gguf.constants")
    values = quants.dequantize(raw.numpy(), constants.GGMLQuantizationType[kind.name])
    return torch.from_numpy(values).double().view(raw.shape[0], k)


@small
@given(shape=shapes, weight_dtype=dtypes, x_dtype=dtypes, y_dtype=dtypes, biased=st.booleans())
def test_dense_products_equal_float64(isa, shape, weight_dtype, x_dtype, y_dtype, biased):
    m, n, k = shape
    weight, x = torch.randn(n, k).to(weight_dtype), torch.randn(m, k).to(x_dtype)
    bias = torch.randn(n) if biased else None
    y = gemm.linear(x, gemm.pack(weight), bias, dtype=y_dtype)
    seen = x.to(torch.bfloat16) if weight_dtype == torch.bfloat16 else x
    exact = seen.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert y.dtype == y_dtype
    assert_close(y, exact, 2e-6 if y_dtype == torch.float32 else 4e-3)


@small
@given(shape=shapes, x_dtype=dtypes)
def test_int8_weights_with_int8_activations(isa, shape, x_dtype):
    m, n, k = shape
    weight, scales = torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n) + 0.1
    x = torch.randn(m, k).to(x_dtype)
    y = gemm.linear(x, gemm.pack_int8(weight, scales), dtype=torch.float32)
    assert_close(y, per_row_int8(x) @ (weight.double() * scales.double()[:, None]).T, 2e-6)


@small
@given(shape=shapes, x_dtype=dtypes)
def test_int8_weights_with_float_activations(isa, shape, x_dtype):
    m, n, k = shape
    weight, scales = torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n) + 0.1
    x = torch.randn(m, k).to(x_dtype)
    y = gemm.linear(x, gemm.pack_int8(weight, scales, activations=16), dtype=torch.float32)
    assert_close(y, x.double() @ (weight.double() * scales.double()[:, None]).T, 2e-6)


def test_int8_extremes_do_not_saturate(isa):
    for sign in (1, -1):
        for value in (-128, 127):
            weight = torch.full((33, 256), value, dtype=torch.int8)
            for m in (1, 6, 20):
                y = gemm.linear(torch.full((m, 256), float(sign)), gemm.pack_int8(weight, torch.ones(33)))
                assert torch.allclose(y, torch.full((m, 33), 256.0 * value * sign))


@pytest.mark.parametrize("kind", BLOCK_FORMATS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("m", [1, 2, 7, 9, 20, 33, 65])
@pytest.mark.parametrize("by_row", [False, True], ids=["", "by row"])
def test_block_formats_compute_what_they_store(isa, kind, m, by_row):
    """Activations are rounded to 8 bits, or, where many rows may be multiplied otherwise, both sides to bfloat16."""
    n, k = 16 * m % 90 + 5, 256 * (m % 3 + 1) if blocks.FORMATS[kind.name].values == 256 else 32 * (m % 5 + 1)
    raw, x = stored_blocks(kind, n, k), torch.randn(m, k)
    weight = decoded(raw, kind, k)
    y = gemm.linear(x, replace(gemm.pack_blocks(raw, kind, k), by_row=by_row))
    widened = isa == "amx" and m >= 32 and not by_row
    exact = x.bfloat16().double() @ weight.bfloat16().double().T if widened else per_block_int8(x) @ weight.T
    assert_close(y, exact, 2e-6)
    assert_close(y, x.double() @ weight.T, 3e-2)


@pytest.mark.parametrize("kind", [*BLOCK_FORMATS, Format.Q4_64, Format.Q4_128], ids=lambda kind: kind.name)
def test_many_rows_are_more_exact_where_they_may_be(isa, kind):
    """0.17 % of the 2-norm by bfloat16, 0.53 % by activations of 8 bits. Few rows have one form, without AMX all."""
    n, k = 96, 256 * 3
    weight, x = random_weight(kind, n, k), torch.randn(200, k).bfloat16()
    exact = x.double() @ gemm.lookup(weight, torch.arange(n), torch.float32)[:, unordered(weight)].double().T
    fast, by_row = (
        gemm.linear(x, replace(weight, by_row=asked), dtype=torch.float32).double() for asked in (False, True)
    )
    errors = [((y - exact).norm() / exact.norm()).item() for y in (fast, by_row)]
    assert 3e-3 < errors[1] < 8e-3
    assert errors[0] < 2.5e-3 if isa == "amx" else torch.equal(fast, by_row)
    for m in (1, 5, 31):
        some = gemm.linear(x[:m], weight, dtype=torch.float32)
        assert torch.equal(some.double(), by_row[:m])


def unordered(weight):
    """Which packed input each input of the activations meets."""
    return torch.arange(weight.k) if weight.order is None else weight.order.long().argsort()


def random_weight(kind, n, k):
    if kind in (Format.Q4_64, Format.Q4_128):
        groups = k // int(kind.name[3:])
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        return gemm.pack_groups(codes, torch.rand(n, groups), torch.randn(n, groups), order=torch.randperm(k))
    if kind == Format.W8A8:
        return gemm.pack_int8(torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n))
    return gemm.pack_blocks(stored_blocks(kind, n, k), kind, k)


def test_independence_of_other_rows_is_not_a_way_of_storing():
    for kind in BLOCK_FORMATS:
        assert packed.panel_bytes(kind | packed.BY_ROW, 512) == packed.panel_bytes(kind, 512)
        weight = random_weight(kind, 40, 512)
        rows = [gemm.lookup(replace(weight, by_row=asked), torch.arange(40), torch.bfloat16) for asked in (False, True)]
        assert torch.equal(*rows)


@pytest.mark.parametrize("kind", [*BLOCK_FORMATS, Format.Q4_64, Format.Q4_128, Format.W8A8], ids=lambda kind: kind.name)
def test_a_row_is_the_same_whatever_rows_are_beside_it(isa, kind):
    """Bit for bit where it is asked for: prompts, batches and single tokens round alike."""
    n, k, most = 70, 256 * 3, 200
    weight, x = replace(random_weight(kind, n, k), by_row=True), torch.randn(most, k).bfloat16()
    x[3, 32:64] = 0
    alone = torch.cat([gemm.linear(x[row : row + 1], weight, dtype=torch.float32) for row in range(most)])
    for m in (*range(1, 36), 47, 48, 49, 63, 64, 65, 127, 128, 200):
        assert torch.equal(gemm.linear(x[:m], weight, dtype=torch.float32), alone[:m]), m
    assert torch.equal(gemm.linear(x.float(), weight)[150:], alone[150:])


@pytest.mark.parametrize("kind", BLOCK_FORMATS, ids=lambda kind: kind.name)
def test_largest_codes_do_not_saturate(isa, kind):
    """All codes at their largest and activations at +-127: the integer sums are as large as they can be."""
    layout = blocks.FORMATS[kind.name]
    raw = torch.full((16, 2, layout.stored), 255, dtype=torch.uint8)
    one = torch.ones(1).half().view(torch.uint8)
    for at in (208,) if kind == Format.Q6_K else (0, 2) if kind.name in MINIMUM else (0,):
        raw[..., at : at + 2] = one
    k = 2 * layout.values
    weight = decoded(raw.flatten(1), kind, k)
    x = torch.where(torch.arange(k) % 3 == 0, -127.0, 127.0).expand(3, k).contiguous()
    assert_close(gemm.linear(x, gemm.pack_blocks(raw.flatten(1), kind, k)), x.double() @ weight.T, 1e-6)


@pytest.mark.parametrize("m", [1, 3, 5, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_argmax_is_that_of_the_results(isa, m, dtype):
    x, weight = torch.randn(m, 48).to(dtype), gemm.pack(torch.randn(1000, 48).to(dtype))
    y = gemm.linear(x, weight)
    best = gemm.argmax(x, weight)
    # torch.argmax names any of equal values; rounded to bf16 there are some.
    first = (y == y.amax(1, keepdim=True)).int().argmax(1)
    assert torch.equal(best, first)


def test_argmax_takes_the_lowest_of_equals(isa):
    weight = torch.zeros(700, 32)
    weight[[37, 38, 300, 699]] = 1.0
    for m in (1, 20):
        assert gemm.argmax(torch.ones(m, 32), gemm.pack(weight)).tolist() == [37] * m
        assert gemm.argmax(-torch.ones(m, 32), gemm.pack(weight)).tolist() == [0] * m


def test_strided_and_unaligned_rows(isa):
    source, target = torch.randn(40, 101), torch.full((40, 90), 7.0)
    x, y = source[1:30:2, 3:70], target[5:20, 1:60]
    weight = torch.randn(59, 67)
    gemm.apply(x, gemm.pack(weight), None, y)
    assert_close(y, x.double() @ weight.double().T, 2e-6)
    untouched = target.clone()
    untouched[5:20, 1:60] = 7.0
    assert (untouched == 7.0).all()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("shape", [(1, 3000, 64), (300, 40, 64), (65, 250, 96)])
def test_every_division_among_threads_gives_the_same(isa, shape, threads):
    m, n, k = shape
    x, weight = torch.randn(m, k, dtype=torch.bfloat16), gemm.pack(torch.randn(n, k).bfloat16())
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone, best = gemm.linear(x, weight), gemm.argmax(x, weight)
        torch.set_num_threads(threads)
        assert torch.equal(gemm.linear(x, weight), alone)
        assert torch.equal(gemm.argmax(x, weight), best)
    finally:
        torch.set_num_threads(before)


def test_a_workspace_serves_every_smaller_number_of_rows(isa):
    for kind in Format:
        sizes = [(m, 64, 256, 256, 64, 1, 1, kind, 3) for m in range(1, 70)]
        needs = [gemm.workspace_bytes(fields) for fields in sizes]
        assert needs == sorted(needs)


def test_a_workspace_of_many_rows_is_enough_for_fewer(isa):
    """Which other kernels may serve: nothing is written behind what was asked for."""
    n, k = 90, 256
    for kind, by_row in itertools.product((Format.Q4_0, Format.Q6_K, Format.Q4_64), (False, True)):
        weight = replace(random_weight(kind, n, k), by_row=by_row)
        x, y = torch.randn(70, k).bfloat16(), torch.empty(70, n)
        sizes = (70, n, k, k, n, gemm.CODES[x.dtype], gemm.CODES[y.dtype], weight.code, torch.get_num_threads())
        size = gemm.workspace_bytes(sizes, ordered=weight.order is not None)
        space = torch.empty(size + 4096, dtype=torch.uint8).fill_(99)
        for m in (1, 2, 8, 15, 16, 17, 31, 32, 33, 64, 70):
            gemm.apply(x[:m], weight, None, y[:m], workspace=space)
            assert (space[size:] == 99).all(), (kind, by_row, m)
            assert torch.equal(y[:m], gemm.linear(x[:m], weight, dtype=torch.float32))


def test_leading_dimensions_and_no_rows(isa):
    weight = gemm.pack(torch.randn(20, 12))
    assert gemm.linear(torch.randn(2, 3, 12), weight).shape == (2, 3, 20)
    assert gemm.linear(torch.randn(0, 12), weight).shape == (0, 20)
    assert gemm.argmax(torch.randn(0, 12), weight).shape == (0,)


def test_what_does_not_fit_is_refused():
    weight = gemm.pack(torch.randn(20, 12))
    with pytest.raises(ValueError, match="12 inputs"):
        gemm.apply(torch.randn(1, 13), weight, None, torch.empty(1, 20))
    with pytest.raises(ValueError, match="no place"):
        gemm.apply(torch.randn(1, 12), weight, None, torch.empty(1, 21))
    with pytest.raises(ValueError, match="bias"):
        gemm.linear(torch.randn(1, 12), weight, torch.zeros(20, dtype=torch.float64))
    with pytest.raises(ValueError, match="float16"):
        gemm.pack(torch.randn(2, 2).half())
    with pytest.raises(ValueError, match="Q4_0"):
        gemm.pack_blocks(torch.zeros(1, 18, dtype=torch.uint8), Format.Q4_0, 64)


@pytest.mark.covers("ATTN-04")
@pytest.mark.parametrize("cap", ["base", "avx2"])
def test_the_environment_caps_the_instruction_set(cap):
    code = (
        "import torch; from core_plugin_cpu.native import gemm, library;"
        "x, w = torch.randn(3, 50), torch.randn(7, 50); y = gemm.linear(x, gemm.pack(w));"
        "print(library.isa(), torch.allclose(y, x @ w.T, atol=1e-4))"
    )
    env = {**os.environ, "CORE_CPU_ISA": cap}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [cap, "True"], done.stderr
