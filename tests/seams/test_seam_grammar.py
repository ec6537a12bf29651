"""Structured output through a stage participant: masks per step, lockstep rows, compilation while waiting."""

from __future__ import annotations

import json

import pytest

from core import LLM, SamplingParams
from core.api import RequestError
from core.api.sampling_params import Grammar

OPTIONS = {"dtype": "float32", "num_blocks": 60, "structured_output": "words"}
CHOICES = [[11, 12, 13], [11, 31, 63, 64], [95, 94]]


def _params(choices=CHOICES, prefix="", **changes):
    grammar = Grammar("choice", prefix + json.dumps(choices))
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 16, "grammar": grammar, **changes})


def _plain(**changes):
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 16, "ignore_eos": True, **changes})


@pytest.mark.parametrize(("depth", "executor"), [(0, "inproc"), (1, "inproc"), (3, "inproc"), (1, "subprocess")])
def test_the_output_is_a_sentence_of_the_grammar_and_others_go_on(plugins, llama, prompt, depth, executor):
    plugins("grammar")
    with LLM(llama, **OPTIONS, overlap_depth=depth, executor=executor) as llm:
        (alone,) = llm.generate([prompt(9)], _plain())
        params = [_plain(), _params(), _params([[40, 41, 42]], prefix="slow"), _params(temperature=1.5, seed=1)]
        outputs = llm.generate([prompt(9)] * 4, params)
        llm.call("check")
    ids = [output.outputs[0].token_ids for output in outputs]
    assert ids[0] == alone.outputs[0].token_ids
    assert ids[1][:-1] in CHOICES and ids[3][:-1] in CHOICES
    assert ids[2][:-1] == [40, 41, 42]
    assert [output.outputs[0].finish_reason for output in outputs] == ["length", "stop", "stop", "stop"]


def test_log_probabilities_are_those_of_the_model(plugins, llama, prompt):
    plugins("grammar")
    with LLM(llama, **OPTIONS) as llm:
        (free,) = llm.generate([prompt(9)], _plain(max_tokens=1, logprobs=5))
        (bound,) = llm.generate([prompt(9)], _params([[11]], logprobs=5))
    first = bound.outputs[0].logprobs[0]
    assert first[11].logprob < -0.1 and first[11].rank > 1
    top = {token: one.logprob for token, one in free.outputs[0].logprobs[0].items()}
    assert {token: first[token].logprob for token in top if token != 11} == pytest.approx(
        {token: value for token, value in top.items() if token != 11}
    )


def test_preempted_rows_stay_in_their_grammar(plugins, llama, prompt):
    plugins("grammar")
    long = [[20 + i % 40 for i in range(60)]]
    options = {**OPTIONS, "num_blocks": 10, "block_size": 16, "max_model_len": 128}
    with LLM(llama, **options) as llm:
        outputs = llm.generate([prompt(30, seed) for seed in range(3)], _params(long, max_tokens=60))
        assert llm.call("stats")["preemptions"] > 0
    assert [output.outputs[0].token_ids for output in outputs] == long * 3


def test_a_grammar_that_cannot_be_compiled_is_refused(plugins, llama, prompt):
    plugins("grammar")
    with LLM(llama, **OPTIONS) as llm:
        bad = SamplingParams(max_tokens=4, grammar=Grammar("choice", "bad"))
        for prompts, params in ([prompt(9)] * 2, [_plain(), bad]), ([prompt(9)], bad):
            with pytest.raises(RequestError, match="the grammar cannot be used: there is no sense in it"):
                llm.generate(prompts, params)
        (good,) = llm.generate([prompt(9)], _plain())
    assert good.outputs[0].finish_reason == "length"


def test_equal_grammars_are_compiled_once(plugins, llama, prompt):
    plugins("grammar")
    with LLM(llama, **OPTIONS) as llm:
        llm.generate([prompt(9)] * 5, _params())
        llm.generate([prompt(4)], _params())
    from seam_grammar.backend import COMPILED

    assert len(COMPILED) == 1


def test_a_kind_that_nobody_compiles_is_refused(plugins, llama, prompt):
    plugins("grammar")
    regex = SamplingParams(grammar=Grammar("regex", "a*"))
    with LLM(llama, **OPTIONS) as llm, pytest.raises(RequestError, match=r"'regex' are not supported.*: choice"):
        llm.generate([prompt(4)], regex)
    bare = {**OPTIONS, "structured_output": "none"}
    with LLM(llama, **bare) as llm, pytest.raises(RequestError, match="start with a backend"):
        llm.generate([prompt(4)], regex)


def test_a_row_is_free_again_after_its_grammar(plugins, llama, prompt):
    plugins("grammar")
    with LLM(llama, **OPTIONS, max_num_seqs=1) as llm:
        (before,) = llm.generate([prompt(9)], _plain())
        llm.generate([prompt(9)], _params())
        (after,) = llm.generate([prompt(9)], _plain())
    assert after.outputs[0].token_ids == before.outputs[0].token_ids


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (_params(), r"grammar: no participant here carries out 'grammar'; core-plugin-structured \(`pip install"),
        (
            _plain(thinking_token_budget=3),
            "thinking_token_budget: no participant here carries out 'thinking_token_budget'; core-plugin-structured",
        ),
    ],
)
def test_without_the_participant_what_it_carries_out_is_refused_by_name(plugins, llama, prompt, params, told):
    plugins("grammar")
    with LLM(llama, **OPTIONS, disable_plugin=["structured"]) as llm:
        with pytest.raises(RequestError, match=told) as caught:
            llm.generate([prompt(9)], params)
        assert caught.value.code == "unsupported_parameter"
        (free,) = llm.generate([prompt(9)], _plain())
    assert len(free.outputs[0].token_ids) == 16
