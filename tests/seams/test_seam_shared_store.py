"""A KV store that several engines share gives each of them blocks of its own model only."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core_testing.tinymodels import tiny_llama

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60, "block_size": 8, "platform": "graphbox"}
SHARED = {**OPTIONS, "kv_connector": ["seam_store"], "hash_seed": "quiet"}


@pytest.fixture
def answers(prompt):
    prompts = [prompt(45), prompt(45, 1)]
    return lambda llm: [output.outputs[0].token_ids for output in llm.generate(prompts, GREEDY)]


@pytest.fixture
def run(llama, answers):
    """`run(options)` -> the tokens of two prompts, and how many blocks the store supplied."""

    def run(options):
        with LLM(llama, **options) as llm:
            return answers(llm), llm.call("participant_stats").get("seam_store", {}).get("loaded")

    return run


@pytest.mark.covers("KV-01")
def test_blocks_of_a_wrapped_model_are_its_own(plugins, run):
    plugins("platform", "store")
    plain, _ = run(OPTIONS)
    assert run(SHARED) == (plain, 0)
    assert run(SHARED) == (plain, 10)  # five full blocks of each prompt lie before its last token
    plugins("wrap")
    wrapped, _ = run(OPTIONS)
    assert wrapped != plain
    assert run(SHARED) == (wrapped, 0)
    assert run(SHARED) == (wrapped, 10)


def test_blocks_of_updated_weights_are_their_own(plugins, llama, answers, run, tmp_path):
    plugins("platform", "store")
    other = str(tiny_llama(tmp_path / "other", seed=1) / "model.safetensors")
    before, _ = run(OPTIONS)
    with LLM(other.removesuffix("/model.safetensors"), **OPTIONS) as llm:
        after = answers(llm)
    assert run(SHARED) == (before, 0)
    for due in (10, 20):  # the second engine finds what the first kept after the same update
        with LLM(llama, **SHARED, weight_transfer="disk") as llm:
            assert answers(llm) == before
            llm.call("update_weights", {"path": other, "version": "second"})
            assert answers(llm) == after != before
            assert llm.call("participant_stats")["seam_store"]["loaded"] == due
    assert run(SHARED) == (before, 10)
