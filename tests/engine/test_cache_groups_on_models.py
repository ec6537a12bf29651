"""Models whose layers keep different pasts, through the whole engine: one block table or several, the same answers."""

from __future__ import annotations

import re
from contextlib import closing

import numpy as np
import pytest
import torch

from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.tinymodels import reference_model, tiny_model

WINDOW, BLOCK, NEW = 20, 16, 24
LAYERS = {
    "use_sliding_window": True,
    "sliding_window": WINDOW,
    "max_window_layers": 28,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
}
"""Four layers with a window, two without: three cache groups of two layers."""

ROOMY, TIGHT, SCARCE = 4096, 79, 34
"""KV blocks: enough for whatever rows could ever use, which needs no groups; for all requests; for two of them."""

RNG = np.random.default_rng(3)
SHARED = RNG.integers(3, 120, 70).tolist()
PROMPTS = [[*SHARED, 7, 8], RNG.integers(3, 120, 55).tolist(), RNG.integers(3, 120, 9).tolist(), [*SHARED, 9, 10, 11]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_model(tmp_path_factory.mktemp("models") / "qwen2", "qwen2", **LAYERS))


@pytest.fixture(scope="module")
def expected():
    """What transformers answers, one prompt at a time."""
    reference, answers = reference_model("qwen2", **LAYERS), []
    for prompt in PROMPTS:
        tokens = list(prompt)
        with torch.inference_mode():
            for _ in range(NEW):
                tokens.append(int(reference(torch.tensor([tokens])).logits[0, -1].argmax()))
        answers.append(tokens[len(prompt) :])
    return answers


def opened(model, blocks, *, depth=1, budget=None, chunk=None, backend="torch_sdpa", **select):
    options = Options(
        model=ModelOptions(model=model, dtype="float32", max_model_len=128),
        kv=KVOptions(num_blocks=blocks, block_size=BLOCK),
        runtime=RuntimeOptions(threads=1),
        scheduler=SchedulerOptions(
            overlap_depth=depth, max_chunk=chunk, max_num_batched_tokens=budget, max_num_seqs=16
        ),
        select=SelectOptions(attention_backend=backend, **select),
    )
    return closing(open_sync(resolve(options).config))


def answers(engine, prompts=PROMPTS):
    """Return the greedy answers to all prompts at once."""
    texts = {handle: [] for handle in range(len(prompts))}
    for handle, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=NEW, temperature=0.0)
        engine.send(Add(handle=handle, prompt=np.array(prompt, "<i4").tobytes(), params=params, stop_ids=[]))
    while found := engine.step():
        for outputs in found:
            for end in outputs.finished:
                assert end.reason == "length", end
            tokens = np.frombuffer(outputs.tokens, "<i4").tolist()
            for handle, token in zip(np.frombuffer(outputs.handles, "<i8").tolist(), tokens, strict=True):
                texts[handle].append(token)
    engine._core.scheduler.check()
    return [texts[handle] for handle in range(len(prompts))]


@pytest.mark.covers("ATTN-03")
@pytest.mark.parametrize("backend", ["torch_sdpa", "cpu_native"])
@pytest.mark.parametrize(("blocks", "groups"), [(ROOMY, 1), (TIGHT, 3)])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_the_answers_are_those_of_transformers(model, expected, backend, blocks, groups, depth):
    """Whole prompts; then once more, from the prefix cache."""
    with opened(model, blocks, depth=depth, backend=backend) as engine:
        scheduler = engine._core.scheduler
        assert scheduler.rows.groups == groups
        assert answers(engine) == expected
        hits = scheduler.cache.hits
        assert answers(engine) == expected
        assert scheduler.cache.hits - hits >= 2 * len(SHARED) // BLOCK * BLOCK
        assert (scheduler.blocks_freed_early > 0) is (groups == 3)


@pytest.mark.covers("ATTN-03")
@pytest.mark.parametrize("backend", ["torch_sdpa", "cpu_native"])
@pytest.mark.parametrize("blocks", [ROOMY, TIGHT])
def test_prompts_in_chunks_of_seven_give_the_same(model, expected, backend, blocks):
    with opened(model, blocks, chunk=7, backend=backend) as engine:
        assert answers(engine) == expected


@pytest.mark.parametrize("backend", ["torch_sdpa", "cpu_native"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_preempted_requests_give_the_same(model, expected, backend, depth):
    with opened(model, SCARCE, depth=depth, chunk=32, backend=backend) as engine:
        assert engine._core.scheduler.rows.groups == 3
        assert answers(engine) == expected
        assert engine._core.scheduler.preemptions > 0


def test_a_store_supplies_what_every_group_still_reads(model, expected):
    """Blocks of three groups are stored; loaded, those before the window are left out."""
    with opened(model, TIGHT, kv_connector=["cpu_offload"]) as engine:
        assert answers(engine) == expected
        engine._core.pool.forget_all()
        assert answers(engine) == expected
        assert engine._core.stages.stats()["cpu_offload"]["loaded"] > 0


def test_the_start_table_says_what_groups_are_worth(model):
    with opened(model, TIGHT) as engine:
        line = engine.ready.facts["kv cache"]
    found = re.search(r"3 groups of 2 layers: (\d+) requests of 128 tokens fit, (\d+) with one block table", line)
    # A request holds 8 blocks of the full group, and in both others the window and the token after it.
    assert found is not None and [int(number) for number in found.groups()] == [78 // (8 + 2 * 3), 25 // 8]
