"""Programs: recorded native calls replayed in one foreign call, and the graph facet made of them."""

import ctypes
import mmap
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.graphs import CAPACITIES, EagerGraph, PaddedStep, ProgramGraph, ProgramGraphs
from core_plugin_cpu.native import elementwise, library
from core_plugin_cpu.native.partial import NotReplayableError
from core_plugin_cpu.native.record import Trial, record, record_step

from core.api import RopeConfig
from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.api.steps import StepShape
from core.ops import rotary_table

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

HEADS, KV_HEADS, DIM, BLOCK, VOCAB = 4, 2, 16, 16, 50
WIDTH, QKV = HEADS * DIM, (HEADS + 2 * KV_HEADS) * DIM


@pytest.fixture(autouse=True)
def as_in_the_worker():
    with torch.inference_mode():
        yield


class ToyModel:
    """A forward pass of native calls alone, with embeddings in place of linears."""

    def __init__(self, dtype=torch.float32, layers=3):
        torch.manual_seed(0)
        self.embedding, self.qkv, self.mlp = (torch.randn(VOCAB, size).to(dtype) for size in (WIDTH, QKV, 2 * WIDTH))
        self.norm, self.head_norm = torch.rand(WIDTH).to(dtype), torch.rand(DIM).to(dtype)
        self.rope = rotary_table(RopeConfig(head_dim=DIM, rotary_dim=DIM), 200).to(dtype)
        self.backend = NativeAttentionBackend(AttentionContext(torch.device("cpu"), dtype, dtype, BLOCK))
        sites = [AttentionSite(i, HEADS, KV_HEADS, DIM, 0.25) for i in range(layers)]
        self.layers = [self.backend.layer(site) for site in sites]
        self.caches = [torch.zeros(40, *self.backend.kv_layout(site).block_shape, dtype=dtype) for site in sites]

    def forward(self, step):
        residual = elementwise.gather(self.embedding, step.token_ids)
        hidden = elementwise.rms_norm(residual, self.norm, 1e-5)
        for layer, kv in zip(self.layers, self.caches):
            heads = elementwise.gather(self.qkv, step.token_ids).view(-1, HEADS + 2 * KV_HEADS, DIM)
            q, k, v = heads.split_with_sizes([HEADS, KV_HEADS, KV_HEADS], dim=1)
            q, k = elementwise.rms_norm(q, self.head_norm, 1e-5), elementwise.rms_norm(k, self.head_norm, 1e-5)
            q, k = elementwise.rotary(step.positions, q, k, self.rope)
            layer.write_kv(k, v, kv, step.plans[0])
            hidden, residual = elementwise.add_rms_norm(layer.forward(q, kv, step.plans[0]), residual, self.norm, 1e-5)
            gated = elementwise.gated(elementwise.gather(self.mlp, step.token_ids), "silu")
            hidden, residual = elementwise.add_rms_norm(gated, residual, self.norm, 1e-5)
        return hidden


def decode_step(model, lengths, seed):
    """One token for each row; row `i` owns blocks `1 + 5 * i ...`."""
    rows = len(lengths)
    generator = torch.Generator().manual_seed(seed)
    lengths = np.array(lengths, dtype=np.int32)
    tables = torch.arange(1, 1 + 5 * rows, dtype=torch.int32).view(rows, 5)[:, : -(-int(lengths.max()) // BLOCK)]
    positions = torch.from_numpy(lengths.astype(np.int64) - 1)
    slots = tables[torch.arange(rows), positions // BLOCK].long() * BLOCK + positions % BLOCK
    batch = BatchView(np.arange(rows + 1, dtype=np.int32), lengths, tables, slots, 1, int(lengths.max()))
    tokens = torch.randint(0, VOCAB, (rows,), generator=generator)
    return SimpleNamespace(token_ids=tokens, positions=positions, plans=[model.backend.plan(batch)], states=None)


STEPS = ([3, 20, 40], [4, 21, 41], [5, 42, 17, 60], [61], [1, 2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_replays_equal_the_forward_pass_step_after_step(isa, dtype):
    eager, graphed, facet, graphs = ToyModel(dtype), ToyModel(dtype), ProgramGraphs(), {}
    for number, lengths in enumerate(STEPS):
        wanted = eager.forward(decode_step(eager, lengths, number))
        step = decode_step(graphed, lengths, number)
        key = facet.key(StepShape(len(lengths), len(lengths), 1, max(lengths)))
        if key not in graphs:
            graphs[key] = facet.capture(graphed.forward, step)
        assert isinstance(graphs[key], ProgramGraph)
        assert torch.equal(graphs[key].replay(step), wanted)
    for ours, theirs in zip(graphed.caches, eager.caches):
        assert torch.equal(ours[1:], theirs[1:]), "recording may write to the null block only"
    assert sorted(graphs) == [CAPACITIES[0]]


def test_a_program_is_one_call_per_operation():
    model = ToyModel(layers=2)
    step = decode_step(model, [3, 9], 0)
    program, _ = record(lambda: model.forward(step))
    assert program.count == 2 + 2 * 10 + 3, "the calls, and each check once"
    assert {slot: len(places) for slot, places in program.slots.items()} == {
        "tokens": 2 + 2 * 9 + 3,
        "rows": 2 + 1,
        "token_ids": 5 + 1,
        "positions": 2 + 1,
        "slots": 2 + 1,
        "query_starts": 2 + 1,
        "seq_lens": 2 + 1,
        "table": 2 + 1,
        "table_stride": 2 + 1,
        "table_width": 1,
    }


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.prod(1),
        lambda x: x.t() @ x,
        lambda x: x.cumsum_(1),
        lambda x: x[:, torch.tensor([0])],
        lambda x: elementwise.rms_norm(x, x[0], 1e-5).sum().item(),
    ],
)
def test_work_that_a_program_would_miss_is_refused(work):
    x = torch.randn(4, 4)
    with pytest.raises(NotReplayableError, match="aten"):
        record(lambda: work(x))


def test_views_are_no_work_and_data_is_read_anew():
    x, weight = torch.randn(4, 8), torch.rand(4)
    program, out = record(lambda: elementwise.rms_norm(x.view(-1, 4)[2:].unsqueeze(0), weight, 1e-5).flatten(0, 1))
    wanted = -out
    x.neg_()
    program.run()
    assert program.count == 1 and torch.equal(out, wanted)


def test_a_model_that_reads_numbers_runs_as_it_is():
    facet, step = ProgramGraphs(), decode_step(ToyModel(), [2, 3], 0)
    calls = []

    def forward(inputs):
        calls.append(inputs)
        return torch.ones(len(inputs.token_ids), 3) * (2 if bool((inputs.positions >= 0).all()) else 3)

    graph = facet.capture(forward, step)
    assert isinstance(graph, EagerGraph) and facet.refused == "aten.is_nonzero.default reads numbers on the host"
    assert facet.describe() == "none: aten.is_nonzero.default reads numbers on the host"
    assert torch.equal(graph.replay(step), torch.full((2, 3), 2.0)) and calls[-1] is step
    assert facet.key(StepShape(2, 2, 1, 3)) is None


def test_other_attention_is_not_recorded():
    facet = ProgramGraphs()
    graph = facet.capture(lambda step: torch.ones(1), SimpleNamespace(token_ids=torch.zeros(1), plans=[object()]))
    assert isinstance(graph, EagerGraph) and "cpu_native" in facet.refused


def test_every_step_but_very_wide_ones_has_a_program():
    facet = ProgramGraphs()
    usual, most = CAPACITIES
    assert {facet.key(StepShape(n, min(n, 9), 1, 9)) for n in (1, 2, 3, 256, usual)} == {usual}
    assert facet.key(StepShape(usual + 1, 1, usual + 1, 9)) == facet.key(StepShape(most, 1, most, 9)) == most
    assert facet.key(StepShape(most + 1, 1, most + 1, most + 1)) is None


def trial(forward, size):
    padded = PaddedStep.of(size)
    return Trial(lambda: forward(padded), padded.inputs(), padded)


def resident(tensor):
    """Pages of a tensor's memory that are there, in bytes; the system joins mappings, so it is asked page by page."""
    page = mmap.PAGESIZE
    begin, end = -(-tensor.data_ptr() // page) * page, (tensor.data_ptr() + tensor.nbytes) // page * page
    there = (ctypes.c_ubyte * ((end - begin) // page))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), there) == 0
    return page * sum(one & 1 for one in there)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which pages are there")
def test_a_program_takes_the_memory_of_the_steps_it_runs_not_of_those_it_could():
    model = ToyModel(torch.bfloat16, layers=8)
    program, out = record_step(lambda size: trial(model.forward, size), CAPACITIES[0])
    memory = program.keep[0]
    activations = CAPACITIES[0] * 2 * (QKV + 2 * WIDTH + 2 * WIDTH)
    assert 0 < memory.nbytes < 3 * activations, "places are not used again"
    assert resident(memory) == 0 and resident(out) == 0
    ProgramGraph(program, out).replay(decode_step(model, [3, 9], 0))
    assert 0 < resident(memory) <= 16 * mmap.PAGESIZE < memory.nbytes / 8


def step_of(model, rows, seed):
    """One step; `rows` are `(context, queries)`, row `i` owns blocks `1 + 5 * i ...`."""
    context, queries = np.array(rows, dtype=np.int64).T
    lengths, starts = context + queries, np.concatenate([[0], np.cumsum(queries)])
    tables = torch.arange(1, 1 + 5 * len(rows), dtype=torch.int32).view(-1, 5)[:, : -(-int(lengths.max()) // BLOCK)]
    row_of = torch.from_numpy(np.repeat(np.arange(len(rows)), queries))
    positions = torch.from_numpy(np.arange(starts[-1]) - np.repeat(starts[:-1] - context, queries))
    slots = tables[row_of, positions // BLOCK].long() * BLOCK + positions % BLOCK
    batch = BatchView(
        starts.astype(np.int32), lengths.astype(np.int32), tables, slots, int(queries.max()), int(lengths.max())
    )
    tokens = torch.randint(0, VOCAB, (int(starts[-1]),), generator=torch.Generator().manual_seed(seed))
    return SimpleNamespace(token_ids=tokens, positions=positions, plans=[model.backend.plan(batch)], states=None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prompts_and_decode_rows_share_programs(isa, dtype):
    eager, graphed, facet, graphs = ToyModel(dtype), ToyModel(dtype), ProgramGraphs(), {}
    steps = [
        [(0, 40)],
        [(40, 1), (0, 20)],
        [(41, 1), (20, 30), (0, 6)],
        [(42, 1), (50, 1), (6, 1)],
        [(43, 20), (51, 3)],
    ]
    for number, rows in enumerate(steps):
        wanted = eager.forward(step_of(eager, rows, number))
        step = step_of(graphed, rows, number)
        tokens = len(step.token_ids)
        key = facet.key(StepShape(tokens, len(rows), max(queries for _, queries in rows), 70))
        if key not in graphs:
            graphs[key] = facet.capture(graphed.forward, step)
        assert isinstance(graphs[key], ProgramGraph)
        assert torch.equal(graphs[key].replay(step), wanted)
    assert sorted(graphs) == [CAPACITIES[0]]
    for ours, theirs in zip(graphed.caches, eager.caches):
        assert torch.equal(ours[1:], theirs[1:])


def test_recording_for_later_computes_nothing():
    model = ToyModel(layers=2)
    step = decode_step(model, [3, 9], 0)
    before = [cache.clone() for cache in model.caches]
    program, _ = record(lambda: model.forward(step), run=False)
    assert program.count == 2 + 2 * 10 + 3
    assert all(torch.equal(now, then) for now, then in zip(model.caches, before))


def test_two_thousand_replays_with_growing_tables():
    """Rows, lengths and the width of the table change at every step; one program serves all of them."""
    model, rng = ToyModel(torch.bfloat16, layers=1), np.random.default_rng(0)
    facet = ProgramGraphs()
    graph = facet.capture(model.forward, decode_step(model, [1] * 7, 0))
    checked = 0
    for number in range(2000):
        lengths = [1 + (number * (row + 1) + row) % 79 for row in range(int(rng.integers(1, 8)))]
        step = decode_step(model, lengths, number)
        got = graph.replay(step)
        if number % 100 == 0:
            got = got.clone()
            assert torch.equal(model.forward(step), got)
            checked += 1
    assert checked == 20 and not facet.refused
