"""What programs make of recorded calls: fused products, and memory that is used again."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from core_plugin_cpu.native import elementwise, gemm, library
from core_plugin_cpu.native.arena import ALIGNMENT, Need, lay_out
from core_plugin_cpu.native.asked import BY_ROW, COARSE
from core_plugin_cpu.native.gemm import GEMM, GEMM_GATED, Format
from core_plugin_cpu.native.record import record
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

KINDS = (
    *(Format.BF16, Format.W8A8, Format.W8A16, Format.Q4_1, Format.F32, Format.NF4),
    *(Format.E4M3, Format.E4M3_128, Format.E5M2, Format.E5M2_32),
)
FLOAT8 = {Format.E4M3: 0, Format.E4M3_128: 128, Format.E5M2: 0, Format.E5M2_32: 32}
ROWS = (1, 2, 15, 17, 32, 33, 64, 65, 100, 257)


@pytest.fixture(autouse=True)
def as_in_the_worker():
    with torch.inference_mode():
        yield


def packed(kind, n, k):
    """A weight of about the size that models have."""
    if kind == Format.F32:
        return gemm.pack(torch.randn(n, k) / k**0.5)
    if kind == Format.BF16:
        return gemm.pack((torch.randn(n, k) / k**0.5).bfloat16())
    if kind in (Format.W8A8, Format.W8A16):
        codes = torch.randint(-128, 128, (n, k), dtype=torch.int8)
        return gemm.pack_int8(codes, torch.rand(n) / 100, activations=8 if kind == Format.W8A8 else 16)
    if kind in FLOAT8:
        dtype = torch.float8_e4m3fn if kind.name.startswith("E4M3") else torch.float8_e5m2
        codes, size = (torch.randn(n, k) * 64).to(dtype).view(torch.uint8), FLOAT8[kind]
        return gemm.pack_float8(codes, torch.rand(n, -(-k // size) if size else 1) / 1000, size, dtype)
    codes, groups = torch.randint(0, 16, (n, k), dtype=torch.uint8), (n, k // 32)
    if kind == Format.NF4:
        return gemm.pack_table(kind, codes, torch.rand(n, -(-k // 64)) / k**0.5, 64)
    return gemm.pack_groups(codes, torch.rand(groups), -torch.rand(groups))


def both_ways(m, weight, activation, dtype, bias):
    """A product and its gate as two calls, and as a program that may make one of them."""
    x = torch.randn(m, weight.k).to(dtype)
    wanted = elementwise.gated(gemm.linear(x, weight, bias), activation)
    program, out = record(lambda: elementwise.gated(gemm.linear(x, weight, bias), activation), x, run=False)
    program.run()
    return program, wanted, out


@pytest.mark.parametrize("kind, asked", [*((kind, 0) for kind in KINDS), (Format.Q4_1, BY_ROW), (Format.Q4_1, COARSE)])
@pytest.mark.parametrize("n, k", [(192, 64), (96, 576), (40, 32)])
def test_a_product_with_its_gate_equals_the_two(isa, kind, asked, n, k):
    weight = replace(packed(kind, n, k), asked=asked)
    for m in ROWS:
        for bias in (None, torch.randn(n)):
            program, wanted, out = both_ways(m, weight, "silu", torch.bfloat16, bias)
            assert program.entries == (GEMM_GATED,)
            assert torch.equal(out, wanted), f"{m} rows"


@pytest.mark.parametrize("activation", elementwise.ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_gate_equals_its_own_call(isa, activation, dtype):
    weight = packed(Format.BF16, 128, 96)
    for m in (3, 40, 130):
        _, wanted, out = both_ways(m, weight, activation, dtype, None)
        assert torch.equal(out, wanted)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_rows_are_divided_among_threads_without_a_difference(isa, threads):
    before = torch.get_num_threads()
    weight = packed(Format.W8A8, 512, 192)
    try:
        torch.set_num_threads(threads)
        _, wanted, out = both_ways(600, weight, "silu", torch.bfloat16, None)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("n", [64, 72, 80, 33])
def test_a_row_of_int8_does_not_depend_on_the_rows_beside_it(isa, n):
    weight, bias = packed(Format.W8A8, n, 200), torch.randn(n)
    x = torch.randn(300, 200).bfloat16()
    for dtype in (torch.bfloat16, torch.float32):
        alone = torch.cat([gemm.linear(row, weight, bias, dtype=dtype) for row in x.split(1)])
        for m in ROWS:
            assert torch.equal(gemm.linear(x[:m], weight, bias, dtype=dtype), alone[:m]), f"{m} rows"


@pytest.mark.parametrize("rows", [1, 32, 512])
def test_threads_meet_no_more_often_than_that(rows):
    """Few rows are prepared by every thread, many by the one that multiplies them in tiles: neither is waited for."""
    x, wide, narrow = torch.randn(rows, 576).bfloat16(), packed(Format.W8A8, 3072, 576), packed(Format.W8A8, 576, 1536)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        program, _ = record(lambda: gemm.linear(elementwise.gated(gemm.linear(x, wide), "silu"), narrow), x, run=False)
    finally:
        torch.set_num_threads(before)
    assert program.entries == (GEMM_GATED, GEMM)
    # One row's gate is a body of its own, and that of every row where registers are narrow; who of the threads has not
    # come yet is not waited for.
    gate = rows == 1 or library.isa() in ("base", "avx2", "neon")
    prepared = rows == 32 or (rows == 512 and library.isa() != "amx")
    assert all(program.run() <= 2 + 2 * prepared + gate for _ in range(20))


def test_a_result_that_something_else_reads_is_stored():
    x, weight, norm = torch.randn(4, 64).bfloat16(), packed(Format.BF16, 64, 64), torch.ones(32).bfloat16()

    def twice():
        y = gemm.linear(x, weight)
        gate = elementwise.gated(y, "silu")
        return elementwise.add_rms_norm(gate, y.view(-1, 32)[:4], norm, 1e-5)[0]

    program, out = record(twice, x)
    wanted = out.clone()
    program.run()
    assert program.entries.count(GEMM) == 1 and GEMM_GATED not in program.entries
    assert torch.equal(out, wanted)


def test_a_result_that_is_the_programs_own_is_stored():
    x, weight, kept = torch.randn(4, 64).bfloat16(), packed(Format.BF16, 64, 64), []

    def work():
        kept.append(gemm.linear(x, weight))
        elementwise.gated(kept[0], "silu")
        return kept[0]

    program, out = record(work, x)
    wanted = out.clone()
    out.zero_()
    program.run()
    assert GEMM_GATED not in program.entries and torch.equal(out, wanted)


def test_other_strides_are_not_fused():
    x, weight = torch.randn(6, 64).bfloat16(), packed(Format.BF16, 64, 64)
    program, _ = record(lambda: elementwise.gated(gemm.linear(x, weight).view(12, 32), "silu"), x)
    assert GEMM_GATED not in program.entries


needs = st.lists(
    st.builds(
        lambda size, first, length: Need(size, first, first + length),
        st.integers(1, 5000),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(needs=needs)
def test_memory_is_shared_only_by_what_is_not_needed_at_once(needs):
    offsets, total = lay_out(needs)
    for i, a in enumerate(needs):
        assert offsets[i] % ALIGNMENT == 0 and offsets[i] + a.size <= total
        for j, b in enumerate(needs[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]


def test_a_chain_takes_two_places_however_long_it_is():
    offsets, total = lay_out(Need(1000, call, call + 1) for call in range(50))
    assert total == 2 * 1024 and set(offsets) == {0, 1024}


def test_a_program_gives_back_what_it_does_not_need():
    x, weight = torch.randn(8, 512), torch.rand(512)

    def chain():
        y = x
        for _ in range(40):
            y = elementwise.rms_norm(y, weight, 1e-5)
        return y

    program, out = record(chain, x)
    wanted = out.clone()
    out.zero_()
    program.run()
    assert torch.equal(out, wanted)
    memory = next(one for one in program.keep if isinstance(one, torch.Tensor) and one.dtype == torch.uint8)
    assert memory.nbytes < 3 * x.nbytes


def test_each_call_of_a_program_can_be_timed():
    x, weight, norm = torch.randn(64, 256).bfloat16(), packed(Format.BF16, 256, 256), torch.ones(256).bfloat16()
    program, out = record(lambda: elementwise.rms_norm(gemm.linear(x, weight), norm, 1e-5), x)
    wanted = out.clone()
    out.zero_()
    times = program.time()
    assert times.shape == (2,) and times.dtype == np.int64 and (times >= 0).all() and times.sum() > 0
    assert torch.equal(out, wanted)
    assert [program.argument(0, name) for name in ("m", "n", "k")] == [64, 256, 256]
