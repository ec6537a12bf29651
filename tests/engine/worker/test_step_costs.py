"""What a decode step costs around the model, in counts that do not depend on the machine."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from core import LLM, SamplingParams
from core.worker import stage, tables
from core.worker.inputs import InputBuilder
from core.worker.runner import Runner
from core.worker.sampling.sampler import Sampler
from core.worker.transfers import Transfers
from core_testing.tinymodels import tiny_llama

native = pytest.importorskip("core_plugin_cpu.native.library")
GREEDY = SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True)
READING = Counter({"to": 2, "detach": 1, "resolve_conj": 1, "resolve_neg": 1})
"""What it takes to read a tensor of the host as an array; nothing is copied."""
NUCLEUS = SamplingParams(temperature=0.8, top_p=0.9, max_tokens=20, ignore_eos=True)


class Dispatched(TorchDispatchMode):
    """Counts the torch operations of this thread by name."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture
def costs(monkeypatch):
    """Lists of counts, one entry per step: torch operations of `build` and `sample`, native calls of a whole step."""
    if not native.available():
        pytest.skip(f"no native library: {native.reason()}")
    from core_plugin_cpu.native.entry import Entry

    found = {"build": [], "best": [], "sample": [], "native": []}

    def counted(owner, name, key):
        original = getattr(owner, name)

        def call(self, *args):
            counts = Counter()
            found[key].append(counts)
            with Dispatched(counts):
                return original(self, *args)

        monkeypatch.setattr(owner, name, call)

    counted(InputBuilder, "build", "build")
    counted(Sampler, "best", "best")
    counted(Sampler, "sample", "sample")
    execute, called = Runner._execute, Entry.__call__

    def step(self, plan):
        found["native"].append(Counter())
        return execute(self, plan)

    def entry(self, *values):
        if found["native"]:
            found["native"][-1][self.name] += 1
        return called(self, *values)

    monkeypatch.setattr(Runner, "_execute", step)
    monkeypatch.setattr(Entry, "__call__", entry)
    return found


def run(checkpoint, batch, params):
    with LLM(checkpoint, dtype="float32", num_blocks=200, max_num_seqs=8, prefix_caching=False) as llm:
        prompts = [{"prompt_token_ids": [3 + (i * 29 + n) % 90 for i in range(9)]} for n in range(batch)]
        before = llm.call("stats")["steps"]
        outputs = llm.generate(prompts, params)
        assert all(len(output.outputs[0].token_ids) == 20 for output in outputs)
        return llm.call("stats")["steps"] - before


@pytest.mark.parametrize("batch", [1, 8])
def test_a_greedy_decode_step_costs_the_same_for_any_batch(checkpoint, costs, batch):
    steps = run(checkpoint, batch, GREEDY)
    assert steps == 20  # one per token: all requests start together
    decode = slice(-15, None)
    # Inputs are written by numpy into memory that the device's tensors share: torch is not asked at all.
    assert set(map(frozenset, costs["build"][decode])) == {frozenset()}
    # Two results are allocated; no logits are copied, converted or gathered.
    assert all(counts - READING == {"empty": 2} for counts in costs["best"][decode])
    assert not any(counts - READING for counts in costs["sample"][decode])
    for counts in costs["native"][decode]:
        assert counts["argmax"] == 1 and counts["run"] == 1
        assert sum(counts.values()) <= 3  # and the output projection, where the program does not hold it


def test_a_random_decode_step_adds_one_call(checkpoint, costs):
    run(checkpoint, 8, NUCLEUS)
    for counts in costs["native"][-15:]:
        assert (counts["argmax"], counts["draw"], counts["run"]) == (1, 1, 1)
    # The token and its value; the drawn token, and the kernel's scratch memory.
    for counts in (*costs["best"][-15:], *costs["sample"][-15:]):
        assert counts["empty"] == 2 and "copy_" not in counts


def test_a_prefix_hit_computes_only_what_is_new(checkpoint):
    shared = [3 + (i * 29) % 90 for i in range(64)]
    prompts = [{"prompt_token_ids": [*shared, 5 + n, 9, 11]} for n in range(6)]
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
    with LLM(checkpoint, dtype="float32", num_blocks=200, max_num_seqs=8, block_size=16) as llm:
        llm.generate(prompts[:1], params)
        before = llm.call("stats")
        llm.generate(prompts[1:], params)
        after = llm.call("stats")
    assert after["prompt_tokens_computed"] - before["prompt_tokens_computed"] == 5 * 3
    assert after["prefix_hits"] - before["prefix_hits"] == 5 * 64
    assert after["steps"] - before["steps"] == 3


@pytest.mark.parametrize(("requests", "steps"), [(8, 6), (16, 12), (64, 48)])
def test_steps_grow_with_the_work_and_not_with_the_requests_that_wait(checkpoint, requests, steps):
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    with LLM(checkpoint, dtype="float32", num_blocks=200, max_num_seqs=8, overlap_depth=0) as llm:
        llm.generate([{"prompt_token_ids": [3 + n, 4, 5]} for n in range(requests)], params)
        stats = llm.call("stats")
    assert stats["steps"] == steps
    # Every scheduled token is one of a prompt, or one that was sampled and run: nothing is run twice.
    assert stats["scheduled_tokens"] == requests * (3 + 5)


def test_a_host_platform_has_everything_once(bench, prompt):
    for row in (0, 2):
        bench.add(row, prompt(9, row))
    bench.generate(0, 1)
    bench.step({2: None})
    bench.step({0: None, 2: None})
    inputs = bench.runner._inputs
    pairs = [pair for pair in zip(inputs._stage.tensors, inputs._stage.host) if pair[0].numel()]
    assert all(tensor.data_ptr() == array.ctypes.data for tensor, array in pairs)
    assert inputs._tables._tensor.data_ptr() == inputs._tables._host.ctypes.data
    assert bench.rows.tokens.data_ptr() == bench.rows._host.ctypes.data


def test_a_device_of_its_own_gets_the_same_with_one_copy_a_step(make_bench, prompt, monkeypatch):
    def tokens(bench):
        bench.add(0, prompt(9))
        bench.add(3, prompt(5, 1))
        got = [bench.step({0: 4}).tokens.tolist(), bench.step({0: None, 3: None}).tokens.tolist()]
        got += [bench.step({0: None, 3: None}).tokens.tolist() for _ in range(9)]
        bench.preempt(0)
        return [*got, bench.step({3: None}).tokens.tolist(), bench.step({0: None, 3: None}).tokens.tolist()]

    wanted = tokens(make_bench())
    bench, copies = make_bench(transfers=Transfers(torch.device("cpu"), apart=True)), []
    flush = stage.Stage.flush
    monkeypatch.setattr(stage.Stage, "flush", lambda self: copies.append(sum(self._sizes)) or flush(self))
    assert tokens(bench) == wanted
    # One copy a step: token ids, positions, slots and places of each token, where the sampled ones are and go; then,
    # two to a number, where rows start, how long they are, and their block tables.
    assert copies[2] == 2 * 4 + 2 + 2 + (2 + 1 + 1) // 2 + 1 + 2 * 3 // 2 and len(copies) == 13
    staged, batch = bench.runner._inputs._stage, bench.model.batches[-1]
    assert all(t.data_ptr() != a.ctypes.data for t, a in zip(staged.tensors, staged.host))
    for twin, array in zip(batch.on_device(), (batch.query_starts, batch.seq_lens), strict=True):
        assert twin.data_ptr() != array.ctypes.data
        np.testing.assert_array_equal(twin.numpy(), array)


def test_block_tables_are_gathered_once_for_a_batch_that_goes_on(bench, prompt, monkeypatch):
    gathered = []
    gather = tables.BatchTables._gather
    monkeypatch.setattr(tables.BatchTables, "_gather", lambda self, *args: gathered.append(1) or gather(self, *args))
    bench.add(0, prompt(3))
    bench.add(1, prompt(6, 1))
    for _ in range(20):
        bench.step({0: None, 1: None})
    assert len(gathered) == 1
    batch = bench.model.batches[-1]
    for i, row in enumerate((0, 1)):
        blocks = bench.blocks[row]
        assert batch.block_tables[i].tolist() == blocks + [0] * (batch.block_tables.shape[1] - len(blocks))
    bench.step({1: None, 0: None})
    assert len(gathered) == 2
    assert torch.equal(bench.model.batches[-1].block_tables[0], batch.block_tables[0])
