"""What a decode step asks of torch around the graph on a device with memory of its own: counts, not times."""

from __future__ import annotations

from collections import Counter

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from core import LLM, SamplingParams
from core.worker.inputs import InputBuilder
from core.worker.padded import PaddedMemory
from core.worker.runner import Runner

VIEWS = ("slice", "view", "detach", "to", "resolve_conj", "resolve_neg")
COUNTED = {"build": (InputBuilder, "build"), "load": (PaddedMemory, "load"), "sample": (Runner, "_sample")}


class Dispatched(TorchDispatchMode):
    """Counts the torch operations of this thread by name."""

    def __init__(self, counts):
        super().__init__()
        self.counts = counts

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def steps(monkeypatch):
    """The counts of each step, by what was counted."""
    found = {name: [] for name in COUNTED}

    def watch(name, owner, method):
        original = getattr(owner, method)

        def call(self, *args):
            counts = Counter()
            found[name].append(counts)
            with Dispatched(counts):
                return original(self, *args)

        monkeypatch.setattr(owner, method, call)

    for name, (owner, method) in COUNTED.items():
        watch(name, owner, method)
    return found


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize("rows", [1, 3, 6])
def test_a_greedy_decode_step_is_a_few_copies_and_a_replay(plugins, llama, steps, rows):
    """The output projection and the greedy choice are in the graph; places come with the copy of the inputs."""
    plugins("fake_device")
    prompts = [{"prompt_token_ids": [3, 4, 5 + row]} for row in range(rows)]
    params = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
    options = {"dtype": "float32", "attention_backend": "torch_sdpa", "num_blocks": 64, "max_model_len": 96}
    with LLM(llama, **options, max_num_seqs=6, platform="fake") as llm:
        for counts in steps.values():
            counts.clear()
        llm.generate(prompts, params)
    for name, due in {
        "build": {"copy_": 2, "index": 1},  # the inputs, and the tokens of the pool
        "load": {"copy_": 5},  # tokens, positions, lengths, slots, tables
        "sample": {"scatter_": 1},  # the tokens, into the pool
    }.items():
        assert len(steps[name]) > 6, name
        for counts in steps[name][-6:]:
            assert {op: count for op, count in counts.items() if op not in VIEWS} == due, name
            assert sum(counts[op] for op in VIEWS) <= 6, name
