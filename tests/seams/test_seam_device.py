"""A device with memory of its own gives the tokens of the host processor, whatever requests ask for."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from core import LLM, SamplingParams
from core.worker.runner import StepRunner
from core.worker.transfers import Transfers
from core.worker.worker import Worker
from core_testing.fakedevice.queue import LateQueue

meet, upload = Worker._meet, Transfers.upload

REPEATED = [5, 9, 14, 3, 77, 8] * 4
ASKED = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 1.0, "seed": 7, "top_p": 0.9},
    "plain draw": {"temperature": 0.8, "seed": 5},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    "logprobs": {"temperature": 0.0, "logprobs": 3, "prompt_logprobs": 1},
    "asked logprobs": {"temperature": 1.0, "seed": 2, "logprob_token_ids": [4, 40]},
    "bad words": {"temperature": 1.0, "seed": 1, "bad_token_ids": [[40, 41], [12]], "logit_bias": {40: 4.0, 41: 4.0}},
    "minimum": {"temperature": 1.0, "seed": 2, "min_tokens": 12, "stop_token_ids": list(range(3, 60))},
    "allowed": {"temperature": 0.0, "allowed_token_ids": [5, 6, 7, 8]},
    "grammar": {"temperature": 1.0, "seed": 3, "grammar": {"regex": "[0-9]{9}-[a-c]{9}"}},
}
ENGINE = {
    "dtype": "float32",
    "attention_backend": "torch_sdpa",
    "max_num_seqs": 6,
    "max_num_batched_tokens": 40,
    "max_model_len": 96,
    "block_size": 16,
}
ENGINES = {
    "preempted": {"num_blocks": 14},
    "drafts": {"num_blocks": 64, "drafter": "ngram", "draft_tokens": 3},
}


def answers(llm):
    """What all requests of `ASKED` at once are answered, and then those with a common prefix again."""
    prompts = [{"prompt_token_ids": REPEATED[number % 3 :]} for number in range(len(ASKED))]
    params = [SamplingParams(max_tokens=20, **fields) for fields in ASKED.values()]
    found = [*llm.generate(prompts, params), *llm.generate(prompts[:3], params[:3])]
    return [(out.outputs[0].token_ids, out.outputs[0].finish_reason) for out in found], [
        [value.logprob for step in (out.outputs[0].logprobs or []) for value in step.values()]
        + [value.logprob for step in (out.prompt_logprobs or []) if step for value in step.values()]
        for out in found
    ]


FAMILIES = Path(__file__).parents[2] / "plugins" / "models"
RECURRENT = {"qwen3_5": "qwen_next", "recurrent_gemma": "gemma", "mamba": "mamba"}
"""Row -> its plugin: delta rules, decaying sums, and state spaces without any attention."""


def written(family, name, folder):
    """Write the tiny checkpoint of a row of a family's plugin; return where it is."""
    spec = spec_from_file_location("rows_of_a_family", FAMILIES / family / "tests" / "rows.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    (row,) = [row for row in module.ROWS if row.name == name]
    return str(row.write(folder / row.name))


@pytest.fixture(params=RECURRENT)
def remembers(request, tmp_path):
    """A model with recurrent states."""
    return written(RECURRENT[request.param], request.param, tmp_path)


@pytest.fixture(scope="module")
def wanted(llama):
    """What the host processor answers."""
    with LLM(llama, **ENGINE, num_blocks=64, platform="cpu") as llm:
        return answers(llm)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("depth", range(5))
def test_a_device_of_its_own_gives_the_same(plugins, llama, wanted, depth, engine):
    plugins("fake_device")
    with LLM(llama, **ENGINE, **ENGINES[engine], platform="fake", overlap_depth=depth) as llm:
        tokens, scores = answers(llm)
        stats = llm.call("stats")
    assert tokens == wanted[0]
    for found, due in zip(scores, wanted[1], strict=True):
        np.testing.assert_allclose(found, due, atol=1e-4)
    assert stats["prefix_hits"] > 0 and (engine != "preempted" or stats["preemptions"] > 0)


@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("depth", [1, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in (0, 2))])
def test_prompts_by_graphs_give_the_same(plugins, llama, wanted, depth, engine):
    """Pieces of prompts, prefixes from the cache, preempted rows and drafts; a few steps are wider than any graph."""
    plugins("fake_device")
    with LLM(llama, **ENGINE, **ENGINES[engine], platform="fake", graphs="full", overlap_depth=depth) as llm:
        tokens, scores = answers(llm)
        stats, facts = llm.call("stats"), llm._engine.ready.facts
        replayed = llm._engine._core.loop.executor._worker._platform.graphs.replayed
    assert tokens == wanted[0]
    for found, due in zip(scores, wanted[1], strict=True):
        np.testing.assert_allclose(found, due, atol=1e-4)
    assert facts["graphs"] == "full: 4 captured, of up to 6 rows; 2 with prompts, of up to 24 tokens"
    assert stats["prefix_hits"] > 0 and (engine != "preempted" or stats["preemptions"] > 0)
    assert 24 in replayed and stats["steps"] / 2 < len(replayed) <= stats["steps"]


OTHERS = {"gemma2": "gemma", "mpt": "mpt", "minicpm3": "minicpm"}
"""Row -> its plugin: two cache groups, one of windows, and caps; slopes; latents."""


@pytest.mark.exhaustive
@pytest.mark.covers("COMP-03")
@pytest.mark.parametrize("name", OTHERS)
def test_prompts_by_graphs_of_other_attention_give_the_same(plugins, prompt, tmp_path, name):
    plugins("fake_device")
    model = written(OTHERS[name], name, tmp_path)
    prompts = [prompt(length, seed) for seed, length in enumerate((40, 1, 23, 40, 9, 5, 17, 3))]

    def answered(**options):
        with LLM(model, **ENGINE, num_blocks=64, **options) as llm:
            found = [[out.outputs[0].token_ids for out in llm.generate(prompts, TWO)] for _ in range(2)]
            return found, llm._engine._core.loop.executor._worker._platform

    due, _ = answered(platform="cpu")
    found, platform = answered(platform="fake", graphs="full")
    assert found == due and 24 in platform.graphs.replayed


TWO = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture
def two(llama, prompt):
    """`two(**options)` -> the tokens of two requests, facts of the start, and the platform as it is at the end."""

    def make(**options):
        with LLM(llama, **{**ENGINE, "num_blocks": 64, **options}) as llm:
            found = [out.outputs[0].token_ids for out in llm.generate([prompt(9), prompt(4, 1)], TWO)]
            platform = llm._engine._core.loop.executor._worker._platform
            return found, llm._engine.ready.facts, platform

    return make


def test_a_staging_area_that_is_used_again_too_early_changes_tokens(plugins, two, monkeypatch):
    """With a ring of one area that no fence guards, the device reads the inputs of a later step."""
    plugins("fake_device")
    due, _, _ = two(platform="cpu")
    assert two(platform="fake", overlap_depth=2)[0] == due
    monkeypatch.setattr(LateQueue, "fence", lambda self: None)
    monkeypatch.setattr(Worker, "_meet", lambda self, device: replace(meet(self, device), areas=1))
    # A race: where the machine is busy, the device may be done each time.
    assert any(two(platform="fake", overlap_depth=2)[0] != due for _ in range(6))


def test_an_array_that_was_uploaded_may_be_written_again(plugins, two, monkeypatch):
    """It is copied to pinned memory of its own: from any other a device may wait for all that was enqueued before."""
    plugins("fake_device")
    due, _, _ = two(platform="cpu")

    def reused(self, array):
        own = array.copy()
        there = upload(self, own)
        own.fill(0)
        return there

    monkeypatch.setattr(Transfers, "upload", reused)
    assert two(platform="fake", overlap_depth=2)[0] == due


def test_nothing_waits_between_the_logits_and_the_tokens(plugins, two):
    plugins("fake_device")
    _, _, platform = two(platform="fake", overlap_depth=2)
    assert platform.queue().waits == 0


def test_steps_of_one_token_run_by_graphs_and_others_as_they_are(plugins, two):
    plugins("fake_device")
    due, _, _ = two(platform="cpu")
    found, facts, platform = two(platform="fake")
    assert found == due and facts["graphs"] == "decode: 4 captured, of up to 6 rows"
    assert platform.graphs.captured == [6, 4, 2, 1] and set(platform.graphs.replayed) == {2}
    assert len(platform.graphs.replayed) >= 11


@pytest.mark.covers("ATTN-11")
def test_states_are_kept_by_graphs_beside_a_slot_of_nobody(plugins, remembers, prompt):
    """Requests that come and go, longer prompts in pieces, prefixes with their states."""
    plugins("fake_device")
    prompts = [prompt(length, seed) for seed, length in enumerate((40, 1, 23, 40, 9, 5, 17, 3))]
    engine = {**ENGINE, "num_blocks": 64, "state_interval": 16, "state_snapshots": 3}

    def answered(**options):
        with LLM(remembers, **engine, **options) as llm:
            found = [[out.outputs[0].token_ids for out in llm.generate(prompts, TWO)] for _ in range(2)]
            worker = llm._engine._core.loop.executor._worker
            return found, {len(one.memory) for one in worker._loaded.states}, worker._platform

    due, slots, _ = answered(platform="cpu")
    assert slots == {6 + 3} and due[0] == due[1]
    found, slots, platform = answered(platform="fake")
    assert found == due and slots == {6 + 3 + 1}
    assert platform.graphs.captured == [6, 4, 2, 1] and len(platform.graphs.replayed) > 20


def test_a_backend_without_fixed_plans_runs_eagerly_and_says_so(plugins, two):
    plugins("fake_device", "attention")
    due, _, _ = two(platform="cpu")
    found, facts, platform = two(platform="fake", attention_backend="traced")
    assert found == due and not platform.graphs.captured
    assert facts["graphs"].startswith("none: attention backend 'traced' (seam-attention 1.0) makes no plans for them")


def test_a_model_with_states_has_no_graphs_of_prompts_and_says_so(plugins, remembers, prompt):
    plugins("fake_device")
    with LLM(remembers, **ENGINE, num_blocks=64, platform="fake", graphs="full") as llm:
        llm.generate([prompt(9)], TWO)
        facts, graphs = llm._engine.ready.facts, llm._engine._core.loop.executor._worker._platform.graphs
    assert facts["graphs"].startswith("decode: 4 captured, of up to 6 rows; prompts run without: model ")
    assert "keeps recurrent states" in facts["graphs"] and set(graphs.captured) == {6, 4, 2, 1}


@pytest.mark.parametrize("platform", ["fake", "cpu"])
def test_graphs_are_off_where_the_user_says_so(plugins, two, platform):
    plugins("fake_device")
    due, _, _ = two(platform="cpu")
    found, facts, opened = two(platform=platform, graphs="none")
    assert found == due and facts["graphs"] == "none: as --graphs says"
    assert platform == "cpu" or not opened.graphs.captured


def test_the_cache_is_a_part_of_what_the_widest_step_leaves(plugins, two, monkeypatch):
    """A quarter of the fake device's GiB is in use at once."""
    plugins("fake_device")
    widest, begin = [], StepRunner.begin
    monkeypatch.setattr(
        StepRunner,
        "begin",
        lambda self, plan, late=None: widest.append(plan.counts.tolist()) or begin(self, plan, late),
    )
    _, facts, _ = two(platform="fake", num_blocks=None, max_num_seqs=3, max_model_len=32, memory_fraction=0.5)
    assert widest[0] == [32, 7, 1]
    assert facts["kv cache"].endswith("(all that 3 requests of 32 tokens can use)")
    monkeypatch.setattr("core_testing.fakedevice.platform.TOTAL", 2**20)
    _, facts, _ = two(platform="fake", num_blocks=None, memory_fraction=0.5)
    assert facts["kv cache"].endswith(
        "(memory_fraction 0.5 of 0.00 GiB is 0.00 GiB, of which weights and a step take 0.00 GiB)"
    )
    blocks = int(2**20 / 2 - 2**20 / 4) // (3 * 2 * 16 * 2 * 16 * 4)
    assert f"{blocks} blocks" in facts["kv cache"]


@pytest.mark.parametrize("depth", [0, 2])
def test_pooling_gives_the_same(plugins, llama, depth):
    plugins("fake_device")
    prompts = [REPEATED[number:] for number in range(7)]
    options = {**ENGINE, "runner": "pooling", "max_num_batched_tokens": 96}
    with LLM(llama, **options, platform="cpu") as llm:
        wanted = [one.outputs.embedding for one in llm.embed(prompts)]
    with LLM(llama, **options, platform="fake", overlap_depth=depth) as llm:
        found = [one.outputs.embedding for one in llm.embed(prompts)]
        assert llm._engine.ready.facts["graphs"] == "none: this task runs whole prompts"
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_worker_process_of_its_own_gives_the_same(plugins, llama, prompt, two):
    plugins("fake_device")
    due, _, _ = two(platform="cpu")
    with LLM(llama, **ENGINE, num_blocks=64, platform="fake", executor="subprocess", overlap_depth=2) as llm:
        found = [out.outputs[0].token_ids for out in llm.generate([prompt(9), prompt(4, 1)], TWO)]
    assert found == due
