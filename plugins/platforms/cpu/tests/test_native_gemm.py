"""Packed matrix products against float64, for every format, instruction set and tail."""

import itertools
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from core_plugin_cpu.native import blocks, gemm, library, pack_floats, packed
from core_plugin_cpu.native.asked import ASKED, BY_ROW, COARSE, FINE
from core_plugin_cpu.native.gemm import Format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .stored import decoded, set_scales, stored_blocks

BLOCK_FORMATS = [kind for kind in Format if kind.name in blocks.FORMATS]
ALL_BLOCKS = [*BLOCK_FORMATS, Format.Q4_64, Format.Q4_128]
EXACT = (Format.MXFP4, Format.NVFP4)
"""Block formats whose values are numbers in bfloat16."""

DOTS_OF_BYTES = ("avx_vnni", "avx512_vnni", "avx512_bf16", "neon_dot", "neon_bf16", "neon_i8mm")
"""Instruction sets where 15 bits of the activations are two products of bytes, and tiles come no wider."""

WAYS = (0, BY_ROW, COARSE, FINE, BY_ROW | COARSE)
"""What may be asked of block formats."""

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
    """Activations as block formats see them where that is asked for: one scale for 32 inputs."""
    return per_row_int8(x.unflatten(-1, (-1, 32))).flatten(-2)


def per_block_int16(x):
    """Activations as they see them otherwise: 15 bits, the scale a power of two."""
    groups = x.double().unflatten(-1, (-1, 32))
    scale = torch.exp2(groups.abs().amax(-1, keepdim=True).clamp(min=1e-30).log2().floor() - 13)
    return (torch.round(groups / scale) * scale).flatten(-2)


def arithmetic(isa, m, asked):
    """Which form of the activations a product of m rows uses."""
    if isa == "amx" and not asked & BY_ROW and m >= (32 if asked & COARSE else 17):
        return "bfloat16"
    few = m if isa == "amx" else 4 if isa in DOTS_OF_BYTES else 1
    return "int8" if asked & COARSE or (not asked and m > few) else "int16"


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


@pytest.mark.parametrize("kind", [Format.F32, Format.BF16, Format.W8A16, Format.E4M3], ids=lambda kind: kind.name)
def test_rows_of_several_tiles_meet_many_inputs_a_part_at_a_time(isa, kind):
    """More inputs than `kShallow` times the depth of each kernel."""
    n, k = 90, 9000
    x = torch.randn(110, k).to(torch.float32 if kind == Format.F32 else torch.bfloat16)
    weight = deep_weight(kind, torch.randn(n, k))
    exact = x.double() @ gemm.lookup(weight, torch.arange(n), torch.float32).double().T
    for m in (12, 13, 40, 110):
        assert_close(gemm.linear(x[:m], weight, dtype=torch.float32), exact[:m], 1e-5)
        assert_close(gemm.linear(x[:m], weight, torch.ones(n), dtype=torch.bfloat16), exact[:m] + 1, 2**-8)


def deep_weight(kind, values):
    scale = values.abs().amax(1) / 127
    if kind == Format.W8A16:
        return gemm.pack_int8((values / scale[:, None]).round().to(torch.int8), scale, activations=16)
    if kind == Format.E4M3:
        codes = (values / scale[:, None]).to(torch.float8_e4m3fn).view(torch.uint8)
        return pack_floats.pack_float8(codes, scale[:, None], 0, torch.float8_e4m3fn)
    return gemm.pack(values.to(torch.float32 if kind == Format.F32 else torch.bfloat16))


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
@pytest.mark.parametrize("m", [1, 2, 4, 5, 7, 9, 16, 17, 33, 65])
def test_block_formats_compute_what_they_store(isa, kind, m):
    """Activations are rounded to integers, or, where many rows may be multiplied otherwise, both sides to bfloat16."""
    unit = blocks.FORMATS[kind.name].values
    n, k = 16 * m % 90 + 5, unit * (m % (5 if unit == 32 else 3) + 1)
    raw, x = stored_blocks(kind.name, n, k), torch.randn(m, k)
    weight = decoded(raw, kind.name, k)
    forms = {
        "bfloat16": x.bfloat16().double() @ weight.bfloat16().double().T,
        "int16": per_block_int16(x) @ weight.T,
        "int8": per_block_int8(x) @ weight.T,
    }
    for asked in WAYS:
        y = gemm.linear(x, replace(gemm.pack_blocks(raw, kind, k), asked=asked))
        form = arithmetic(isa, m, asked)
        assert_close(y, forms[form], 2e-6)
        assert_close(y, x.double() @ weight.T, {"bfloat16": 2e-2, "int16": 1e-3, "int8": 3e-2}[form])


@pytest.mark.parametrize("kind", ALL_BLOCKS, ids=lambda kind: kind.name)
def test_how_exact_each_form_is(isa, kind):
    """In the 2-norm: 0.001 % by activations of 15 bits, 0.17 % by bfloat16, 0.53 % by activations of 8 bits."""
    n, k, most = 96, 256 * 3, 64
    weight, x = random_weight(kind, n, k), torch.randn(most, k).bfloat16()
    exact = x.double() @ gemm.lookup(weight, torch.arange(n), torch.float32)[:, unordered(weight)].double().T
    by_row = gemm.linear(x, replace(weight, asked=BY_ROW), dtype=torch.float32)
    coarse = gemm.linear(x, replace(weight, asked=BY_ROW | COARSE), dtype=torch.float32)
    for m in (*range(1, 35), most):
        for asked in (0, COARSE, FINE):
            y = gemm.linear(x[:m], replace(weight, asked=asked), dtype=torch.float32)
            error, form = ((y - exact[:m]).norm() / exact[:m].norm()).item(), arithmetic(isa, m, asked)
            least, largest = {"bfloat16": (1e-4, 2.5e-3), "int16": (0, 1e-4), "int8": (5e-4, 2e-2)}[form]
            exact_weights = kind in EXACT  # in bfloat16, too
            assert (0 if exact_weights else least) <= error < largest, (m, asked)
            if form != "bfloat16":
                assert torch.equal(y, (by_row if form == "int16" else coarse)[:m])


def unordered(weight):
    """Which packed input each input of the activations meets."""
    return torch.arange(weight.k) if weight.order is None else weight.order.long().argsort()


def random_weight(kind, n, k):
    if kind in (Format.Q4_64, Format.Q4_128):
        groups = k // int(kind.name[3:])
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        return gemm.pack_groups(codes, torch.rand(n, groups), torch.randn(n, groups), order=torch.randperm(k))
    if kind in (Format.MXFP4, Format.NVFP4):
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        if kind == Format.MXFP4:
            return gemm.pack_float4(codes, torch.randint(120, 126, (n, k // 32), dtype=torch.uint8))
        scales = (torch.rand(n, k // 16) * 400).to(torch.float8_e4m3fn).view(torch.uint8)
        return gemm.pack_float4(codes, scales, torch.rand(n) / 300)
    if kind == Format.W8A8:
        return gemm.pack_int8(torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n))
    return gemm.pack_blocks(stored_blocks(kind.name, n, k), kind, k)


def test_what_is_asked_of_products_is_not_a_way_of_storing():
    for kind in BLOCK_FORMATS:
        assert packed.panel_bytes(kind | ASKED, 512) == packed.panel_bytes(kind, 512)
        weight = random_weight(kind, 40, 512)
        rows = [gemm.lookup(replace(weight, asked=asked), torch.arange(40), torch.bfloat16) for asked in (0, ASKED)]
        assert torch.equal(*rows)


@pytest.mark.parametrize("kind", [*ALL_BLOCKS, Format.W8A8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("asked", [BY_ROW, BY_ROW | COARSE], ids=["", "8 bits"])
def test_products_of_integers_are_the_same_at_every_level(isa, kind, asked):
    """Bit for bit: integer sums are exact, and scales are applied in one order."""
    if isa == "base":
        pytest.skip("multiplies and adds in two operations, each of which rounds")
    n, k = 90, 256 * 3
    weight, x = replace(random_weight(kind, n, k), asked=asked), torch.randn(40, k).bfloat16()
    x[1, 32:64], x[2] = 0, 127
    several = [gemm.linear(x[:m], weight, dtype=torch.float32) for m in (1, 3, 4, 7, 40)]
    library.select_isa("avx2")
    for y in several:
        assert torch.equal(y, gemm.linear(x[: len(y)], weight, dtype=torch.float32)), len(y)


@pytest.mark.parametrize("kind", [*ALL_BLOCKS, Format.W8A8], ids=lambda kind: kind.name)
@pytest.mark.parametrize("asked", [BY_ROW, BY_ROW | COARSE], ids=["", "8 bits"])
def test_a_row_is_the_same_whatever_rows_are_beside_it(isa, kind, asked):
    """Bit for bit where it is asked for: prompts, batches and single tokens round alike."""
    n, k, most = 70, 256 * 3, 200
    weight, x = replace(random_weight(kind, n, k), asked=asked), torch.randn(most, k).bfloat16()
    x[3, 32:64] = 0
    alone = torch.cat([gemm.linear(x[row : row + 1], weight, dtype=torch.float32) for row in range(most)])
    for m in (*range(1, 36), 47, 48, 49, 63, 64, 65, 127, 128, 200):
        assert torch.equal(gemm.linear(x[:m], weight, dtype=torch.float32), alone[:m]), m
    assert torch.equal(gemm.linear(x.float(), weight)[150:], alone[150:])


@pytest.mark.parametrize("kind", BLOCK_FORMATS, ids=lambda kind: kind.name)
def test_largest_codes_do_not_saturate(isa, kind):
    """All codes and activations at their largest: the integer sums are as large as they can be."""
    layout = blocks.FORMATS[kind.name]
    raw = torch.full((16, 2, layout.stored), 255, dtype=torch.uint8)
    one = torch.ones(1).half().view(torch.uint8)
    set_scales(raw, kind.name, lambda: one)
    k = 2 * layout.values
    weight = decoded(raw.flatten(1), kind.name, k)
    x = torch.where(torch.arange(k) % 3 == 0, -127.99999, 127.99999).expand(8, k).contiguous()
    for asked in (FINE | BY_ROW, COARSE | BY_ROW):
        packed_weight = replace(gemm.pack_blocks(raw.flatten(1), kind, k), asked=asked)
        for m in (1, 3, 8):
            assert_close(gemm.linear(x[:m], packed_weight), x[:m].double() @ weight.T, 1e-6)
            assert_close(gemm.linear(-x[:m], packed_weight), -x[:m].double() @ weight.T, 1e-6)


def test_activations_of_any_size(isa):
    """Zeros, numbers next to nothing, large ones, and infinity, which is not to become a number."""
    weight = replace(random_weight(Format.Q4_0, 32, 64), asked=FINE | BY_ROW)
    values = gemm.lookup(weight, torch.arange(32), torch.float32)
    for m in (1, 8):
        x = torch.randn(m, 64)
        for size in (0.0, 1e-42, 1e-36, 1e-30, 1e30):
            y = gemm.linear(x * size, weight)
            exact = (x * size).double() @ values.double().T
            assert (y - exact).abs().max() <= 1e-3 * exact.abs().max() + 1e-37
        x[:, 40] = float("inf")
        assert gemm.linear(x, weight).isnan().all()


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
    for kind, asked in itertools.product((Format.Q4_0, Format.Q6_K, Format.Q4_64), WAYS):
        weight = replace(random_weight(kind, n, k), asked=asked)
        x, y = torch.randn(70, k).bfloat16(), torch.empty(70, n)
        sizes = (70, n, k, k, n, gemm.CODES[x.dtype], gemm.CODES[y.dtype], weight.code, torch.get_num_threads())
        size = gemm.workspace_bytes(sizes, ordered=weight.order is not None)
        space = torch.empty(size + 4096, dtype=torch.uint8).fill_(99)
        for m in (1, 2, 4, 5, 8, 15, 16, 17, 31, 32, 33, 64, 65, 70):
            gemm.apply(x[:m], weight, None, y[:m], workspace=space)
            assert (space[size:] == 99).all(), (kind, asked, m)
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
