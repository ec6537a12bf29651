"""Logits processors of plugins: per-request arguments, rows that stay put, failures that stay with their row."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api import RequestError

OPTIONS = {"dtype": "float32", "num_blocks": 60, "max_num_seqs": 4}
GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


def _ids(output):
    return output.outputs[0].token_ids


def test_arguments_of_a_request_concern_that_request_alone(plugins, llama, prompt):
    plugins("logits")
    with LLM(llama, **OPTIONS, logits_processor=["ban", "lift"]) as llm:
        plain = _ids(llm.generate([prompt(9)], GREEDY)[0])
        banned = GREEDY.replace(extra_args={"ban": plain[:1]})
        late = GREEDY.replace(extra_args={"ban": plain[:1], "ban_after": 100})
        outputs = [_ids(one) for one in llm.generate([prompt(9)] * 3, [GREEDY, banned, late])]
    assert outputs[0] == outputs[2] == plain
    assert plain[0] not in outputs[1] and len(outputs[1]) == 8


def test_rows_are_released_before_they_are_given_away(plugins, llama, prompt):
    plugins("logits")
    with LLM(llama, **{**OPTIONS, "max_num_seqs": 1}, logits_processor=["ban"]) as llm:
        llm.generate([prompt(3), prompt(4)], GREEDY.replace(extra_args={"ban": [5]}))
        llm.generate([prompt(5)], GREEDY)
    from seam_logits.processors import LOG

    told = [entry for entry in LOG if isinstance(entry, tuple)]
    assert told[-5:] == [("admit", 0, 3), ("release", 0), ("admit", 0, 4), ("release", 0), ("admit", 0, 5)]


def test_options_of_the_plugin_hold_for_every_request(plugins, llama, prompt):
    plugins("logits")
    with LLM(llama, **OPTIONS) as llm:
        first = _ids(llm.generate([prompt(9)], GREEDY)[0])[0]
    options = {"plugin_options": {"ban": {"always": [first]}}}
    with LLM(llama, **OPTIONS, logits_processor=["ban"], **options) as llm:
        assert first not in _ids(llm.generate([prompt(9)], GREEDY)[0])


def test_an_argmax_invariant_processor_runs_for_draws_only(plugins, llama, prompt):
    plugins("logits")
    lifted = {"extra_args": {"lift": True}}
    hot = SamplingParams(temperature=2.0, seed=3, max_tokens=8, ignore_eos=True)
    with LLM(llama, **OPTIONS, logits_processor=["lift"]) as llm:
        greedy = llm.generate([prompt(9)], GREEDY.replace(**lifted))[0]
        from seam_logits.processors import LOG

        lift = next(entry for entry in LOG if not isinstance(entry, tuple))
        assert lift.applied == []
        outputs = llm.generate([prompt(9)] * 2, [hot, hot.replace(**lifted)])
        assert lift.applied and all(len(rows) == 1 for rows in lift.applied)
    assert _ids(outputs[1]) == _ids(greedy) != _ids(outputs[0])


@pytest.mark.parametrize("moment", ["admit", "apply"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_processor_that_breaks_ends_its_request_alone(plugins, llama, prompt, moment, temperature):
    plugins("logits")
    params = GREEDY.replace(temperature=temperature, seed=1)
    broken = params.replace(extra_args={"ban_breaks": moment})
    with LLM(llama, **OPTIONS, logits_processor=["ban"]) as llm:
        alone = _ids(llm.generate([prompt(9)], params)[0])
        good, bad = llm.generate([prompt(9), prompt(9)], [params, broken])
        assert _ids(good) == alone and good.outputs[0].finish_reason == "length"
        assert bad.outputs[0].finish_reason == "error"
        assert "CORE-E126" in bad.outputs[0].error and "told to break" in bad.outputs[0].error
        assert "'ban' (seam-logits 1.0)" in bad.outputs[0].error
        assert _ids(llm.generate([prompt(9)], params)[0]) == alone


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"bann": [1]}, "no plugin here reads 'bann'; known: ban, ban_after, ban_breaks"),
        ({"ban": ["x"]}, "ban must be a list of token ids"),
    ],
)
def test_arguments_are_checked_before_anything_runs(plugins, llama, prompt, extra, text):
    plugins("logits")
    with LLM(llama, **OPTIONS, logits_processor=["ban"]) as llm:
        with pytest.raises(RequestError, match=text) as refusal:
            llm.generate([prompt(4)], GREEDY.replace(extra_args=extra))
        assert refusal.value.param == "extra_args"


def test_without_processors_every_argument_is_unknown(llama, prompt):
    with LLM(llama, **OPTIONS) as llm, pytest.raises(RequestError, match="there is none"):
        llm.generate([prompt(4)], GREEDY.replace(extra_args={"ban": [1]}))


@pytest.mark.parametrize("extra", [[1], {1: 2}, {str(i): i for i in range(65)}])
def test_extra_arguments_are_a_small_mapping_of_names(extra):
    with pytest.raises(RequestError, match="extra_args must map at most 64 names"):
        SamplingParams(extra_args=extra)
