"""Teams of threads: how work is cut, who takes what, how often threads meet, and a thread that is held up."""

import os
import sys
import threading
import time

import pytest
import torch
from core_plugin_cpu.native import elementwise, gemm, library, packed, teams
from core_plugin_cpu.native.gemm import GEMM, Format
from core_plugin_cpu.native.record import record
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

PANEL = 16
LEAST_BYTES = 32 << 10
"""Of weights in a piece, where a share has several: a quarter of what is aimed at, since tiles stay whole."""


@pytest.fixture(autouse=True)
def as_in_the_worker():
    with torch.inference_mode():
        yield


@pytest.fixture
def threads():
    """Sets torch's compute threads, which are the native ones; undone afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def hold():
    """Has a thread keep its first piece of each round until others have computed the rest of its share."""
    yield teams.HOLD
    teams.HOLD(-1)


def cut(m, n, k, kind, count, x_dtype=torch.bfloat16):
    return teams.gemm_pieces(GEMM.pack(*[0] * 7, m, n, k, k, n, gemm.CODES[x_dtype], 1, kind, count))


def shares(pieces, count):
    """Pieces of each thread's share, by index; a product may be worth fewer threads."""
    each = max(1, len(pieces) // count)
    return [pieces[first : first + each] for first in range(0, len(pieces), each)]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    m=st.one_of(st.integers(1, 40), st.integers(1, 3000)),
    n=st.integers(1, 5000),
    k=st.integers(1, 2000),
    kind=st.sampled_from([Format.F32, Format.BF16, Format.W8A8, Format.Q4_0, Format.Q6_K]),
    count=st.integers(1, 64),
)
def test_pieces_cover_a_product_once_for_every_number_of_threads(m, n, k, kind, count):
    panels, left = -(-n // PANEL), 0
    for row, row_end, panel, panel_end in cut(m, n, k, kind, count).tolist():
        assert 0 <= row <= row_end <= m and 0 <= panel <= panel_end <= panels
        left += (row_end - row) * (panel_end - panel)
    assert left == m * panels, "rows or panels are missing, or there twice"
    seen = torch.zeros(m, panels, dtype=torch.int16)
    for row, row_end, panel, panel_end in cut(m, n, k, kind, count).tolist():
        seen[row:row_end, panel:panel_end] += 1
    assert (seen == 1).all()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    m=st.one_of(st.integers(1, 40), st.integers(1, 3000)),
    n=st.integers(16, 60_000),
    k=st.sampled_from([576, 1536, 2048, 4096]),
    kind=st.sampled_from([Format.BF16, Format.W8A8, Format.Q4_0]),
    count=st.integers(1, 64),
)
def test_shares_are_even_and_pieces_not_too_small(m, n, k, kind, count):
    pieces = cut(m, n, k, kind, count)
    tall, wide = pieces[:, 1] - pieces[:, 0], pieces[:, 3] - pieces[:, 2]
    used = next(used for used in range(min(count, len(pieces)), 0, -1) if len(pieces) % used == 0)
    each = len(pieces) // used
    assert each <= 64
    # A tile is up to 32 rows by 4 panels: more than one of them nobody has more to do than another.
    widths = [int(one.sum()) for one in shares(wide, used)]
    heights = [int(one.sum()) for one in shares(tall, used)]
    assert max(widths) - min(widths) <= 4 * each or max(heights) - min(heights) <= 32 * each
    if each > 1:
        if (pieces[0, 2:] == pieces[1, 2:]).all():
            assert tall.min() >= 32, "each piece reads all weights"
        else:
            assert (wide * packed.panel_bytes(kind, k) * tall.clip(64) / 64).min() >= LEAST_BYTES


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64])
def test_a_large_product_has_pieces_enough_to_take_over(count):
    """The output projection of a small model, one row: a thread that stands still holds a small part of it."""
    pieces = cut(1, 49152, 576, Format.BF16, count)
    assert len(pieces) == count * (1 if count == 1 else min(64, 49152 // PANEL // count // 7))


def program_of(rows, dtype=torch.bfloat16, kinds=(Format.BF16, Format.BF16)):
    """Two products and what is between them, recorded for the threads that are set."""
    x = torch.randn(rows, 576).to(dtype)
    wide, narrow = gemm.pack(torch.randn(3072, 576).to(dtype)), gemm.pack(torch.randn(576, 1536).to(dtype))
    head = gemm.pack(torch.randn(9000, 576).to(dtype))
    norm = torch.rand(576).to(dtype)

    def work():
        hidden = gemm.linear(elementwise.gated(gemm.linear(x, wide), "silu"), narrow)
        return gemm.linear(elementwise.rms_norm(hidden, norm, 1e-5), head)

    program, out = record(work, x)
    return program, out


@pytest.mark.parametrize("rows", [1, 5, 40, 300])
@pytest.mark.parametrize("count", [2, 3, 5, 16])
def test_a_thread_that_stands_still_leaves_the_rest_of_its_share_to_others(isa, threads, hold, rows, count):
    threads(count)
    program, out = program_of(rows)
    program.run()
    wanted, quiet = out.clone(), teams.counts()
    program.run()
    usual = teams.counts() - quiet
    for held in {1, count - 1}:
        hold(held)
        before = teams.counts()
        for _ in range(3):
            out.zero_()
            program.run()
            assert torch.equal(out, wanted)
        done = teams.counts() - before
        assert (done.rounds, done.pieces) == (3 * usual.rounds, 3 * usual.pieces), "cut otherwise"
        assert done.stolen >= 3, "its pieces were computed by nobody else"


@pytest.mark.parametrize("held", [1, 2])
def test_alone_a_product_is_taken_over_too(threads, hold, held):
    x, weight = torch.randn(3, 576), gemm.pack(torch.randn(9000, 576))
    threads(3)
    wanted, best = gemm.linear(x, weight), gemm.argmax(x, weight)
    hold(held)
    before = teams.counts()
    assert torch.equal(gemm.linear(x, weight), wanted)
    assert torch.equal(gemm.argmax(x, weight), best)
    assert (teams.counts() - before).stolen > 0


def test_the_largest_of_equals_is_the_lowest_whoever_finds_it(threads, hold):
    weight = torch.zeros(20_000, 64)
    weight[[37, 9000, 9001, 19_999]] = 1.0
    packed_weight, x = gemm.pack(weight), torch.ones(3, 64)
    threads(4)
    for held in (-1, 1, 2, 3):
        hold(held)
        for _ in range(5):
            assert gemm.argmax(x, packed_weight).tolist() == [37] * 3
            assert gemm.argmax(-x, packed_weight).tolist() == [0] * 3


def layers_of(rows, layers):
    """The products of SmolLM2-135M's layers and what is between them, without attention; then its output projection."""
    x = torch.randn(rows, 576).bfloat16()
    sizes = ((960, 576), (576, 576), (3072, 576), (576, 1536))
    qkv, out, wide, narrow = (gemm.pack(torch.randn(size).bfloat16()) for size in sizes)
    head, norm = gemm.pack(torch.randn(9000, 576).bfloat16()), torch.rand(576).bfloat16()

    def work():
        hidden, residual = elementwise.rms_norm(x, norm, 1e-5), x
        for _ in range(layers):
            mixed = gemm.linear(gemm.linear(hidden, qkv)[:, :576], out)
            hidden, residual = elementwise.add_rms_norm(mixed, residual, norm, 1e-5)
            mixed = gemm.linear(elementwise.gated(gemm.linear(hidden, wide), "silu"), narrow)
            hidden, residual = elementwise.add_rms_norm(mixed, residual, norm, 1e-5)
        return gemm.linear(hidden, head)

    return record(work, x, run=False)[0]


@pytest.mark.parametrize("count", [2, 4, 64])
def test_threads_are_waited_for_once_a_product(threads, count):
    """Four times a layer, however many threads there are and whoever comes. To prepare many rows is one more each."""
    threads(count)
    few, many = layers_of(1, 3), layers_of(32, 3)
    for _ in range(5):
        before = teams.counts()
        assert few.run() == (teams.counts() - before).rounds == 3 * 4 + 1
        assert many.run() <= 2 * (3 * 4 + 1) + 3 * 3 + 1, "products and what they prepare, norms and gates"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thread_that_was_made_for_a_program_ends_with_the_thread_that_ran_it(threads):
    def work():
        with torch.inference_mode():
            torch.set_num_threads(3)
            program, _ = program_of(1)
            program.run()
            seen.append(len(os.listdir("/proc/self/task")))

    seen, before = [], len(os.listdir("/proc/self/task"))
    for _ in range(5):
        one = threading.Thread(target=work)
        one.start()
        one.join()
    deadline = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert min(seen) >= before + 3, "the thread itself, and two that help it"
    assert len(os.listdir("/proc/self/task")) <= before


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_a_fork_computes_with_threads_of_its_own(threads):
    """Of its parent's threads it has only the one that forked."""
    threads(3)
    program, out = program_of(1)
    program.run()
    wanted = out.clone()
    out.zero_()
    child = os.fork()
    if child == 0:
        program.run()
        os._exit(0 if torch.equal(out, wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
