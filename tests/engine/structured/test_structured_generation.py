"""Generation under grammars: whatever ends by itself is a sentence, whatever else the request asks for."""

from __future__ import annotations

import functools
import json
import re

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import LLM, SamplingParams
from core.api.errors import RequestError
from core.api.grammars import Grammar, Thinking

OPTIONS = {"dtype": "float32", "num_blocks": 200, "max_num_seqs": 16}
PROMPT = {"prompt_token_ids": [5, 9, 14, 3, 3, 77, 8]}
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "w": {"enum": ["x", "yy"]},
        "l": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["n", "w"],
    "additionalProperties": False,
}
CALL = {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</f>"}
FORM = {"type": "triggered_tags", "triggers": ["<f>"], "tags": [CALL], "at_least_one": True, "stop_after_first": True}
ASKED = {
    "json": SCHEMA,
    "regex": "[0-9]{3}-[a-c]{2,4}",
    "choice": ["red", "green apple", "re"],
    "grammar": 'root ::= "a" [0-9]{1,3} "b"',
    "structural_tag": {"format": FORM},
}
COMPACT = {"disable_any_whitespace": True}  # a model that knows nothing would write blanks for ever


def fields(name):
    return {name: ASKED[name], **(COMPACT if name == "json" else {})}


def holds(name, text):
    """Whether a text is what a grammar describes."""
    if name == "json":
        return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))
    if name == "structural_tag":
        return jsonschema.Draft202012Validator(SCHEMA).is_valid(
            json.loads(text.removeprefix("<f>").removesuffix("</f>"))
        )
    if name == "choice":
        return text in ASKED["choice"]
    return re.fullmatch({"regex": ASKED["regex"], "grammar": "a[0-9]{1,3}b"}[name], text) is not None


def params(name, **changes):
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 100, "grammar": fields(name), **changes})


@pytest.fixture(scope="module", params=("llguidance", "xgrammar"))
def llm(request, tiny):
    with LLM(tiny, **OPTIONS, structured_output=request.param) as llm:
        yield llm


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("name", ASKED)
def test_what_ends_by_itself_is_a_sentence(llm, name):
    sampled = params(name, temperature=1.0, seed=3, n=4, logprobs=2)
    greedy, many = llm.generate([PROMPT, PROMPT], [params(name), sampled], use_tqdm=False)
    ended = [one for one in (*greedy.outputs, *many.outputs) if one.finish_reason == "stop"]
    assert len(ended) >= (1 if name == "structural_tag" else 4), [one.text for one in many.outputs]
    assert all(holds(name, one.text) for one in ended), [one.text for one in ended]
    assert all(len(one.logprobs) == len(one.token_ids) for one in many.outputs)
    assert all(one.error is None for one in (*greedy.outputs, *many.outputs))


@pytest.mark.covers("GRAM-01")
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_schemas_of_all_kinds_hold(llm, schemas, data):
    wanted = data.draw(st.lists(schemas, min_size=6, max_size=6))
    asked = [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=80, grammar={"json": schema, **COMPACT})
        for seed, schema in enumerate(wanted)
    ]
    for schema, output in zip(wanted, llm.generate([PROMPT] * len(asked), asked, use_tqdm=False), strict=True):
        (one,) = output.outputs
        if one.finish_reason == "stop" and "\ufffd" not in one.text:
            jsonschema.validate(json.loads(one.text), schema)
        assert one.finish_reason in ("stop", "length") or one.error.startswith("CORE-E160")


NOTHING_NAMED = {"json": {"type": "object", "properties": {}}, **COMPACT}


def drawn(llm, **fields):
    """Return the texts of some answers, of any length, in which a model that knows nothing writes what it may."""
    params = SamplingParams(temperature=1.0, seed=1, n=4, max_tokens=8, grammar={**NOTHING_NAMED, **fields})
    return {one.text for one in llm.generate([PROMPT], params, use_tqdm=False)[0].outputs}


@pytest.mark.covers("GRAM-01")
def test_objects_have_no_properties_but_those_that_are_named(llm):
    assert drawn(llm) == drawn(llm, disable_additional_properties=True) == {"{}"}
    assert drawn(llm, disable_additional_properties=False) != {"{}"}


@pytest.mark.covers("GRAM-01")
def test_an_engine_may_leave_objects_open(tiny):
    with LLM(tiny, **OPTIONS, additional_properties=True) as llm:
        assert drawn(llm) != {"{}"} == drawn(llm, disable_additional_properties=True)


def test_sequences_of_one_request_go_their_own_ways(llm):
    (output,) = llm.generate([PROMPT], params("regex", temperature=5.0, seed=1, n=6), use_tqdm=False)
    texts = [one.text for one in output.outputs]
    assert len(set(texts)) > 1 and all(holds("regex", text) for text in texts)


@pytest.mark.parametrize("changes", [{"min_tokens": 40}, {"ignore_eos": True}, {"min_tokens": 3, "ignore_eos": True}])
def test_a_grammar_at_its_end_ends_the_text(llm, changes):
    (output,) = llm.generate([PROMPT], params("choice", **changes), use_tqdm=False)
    (one,) = output.outputs
    assert one.finish_reason == "stop" and holds("choice", one.text)


def test_stop_texts_cut_the_sentence(llm):
    (whole,) = llm.generate([PROMPT], params("regex"), use_tqdm=False)
    (cut,) = llm.generate([PROMPT], params("regex", stop=["-"]), use_tqdm=False)
    assert cut.outputs[0].text == whole.outputs[0].text.partition("-")[0]
    assert (cut.outputs[0].finish_reason, cut.outputs[0].stop_reason) == ("stop", "-")


def test_a_sentence_that_is_too_long_ends_by_length(llm):
    (output,) = llm.generate([PROMPT], params("regex", max_tokens=2), use_tqdm=False)
    (whole,) = llm.generate([PROMPT], params("regex"), use_tqdm=False)
    assert output.outputs[0].finish_reason == "length"
    assert whole.outputs[0].token_ids[:2] == output.outputs[0].token_ids


def test_allowed_tokens_and_bias_work_inside_the_grammar(llm):
    (digit,) = llm.get_tokenizer().encode("7", add_special_tokens=False)
    (output,) = llm.generate([PROMPT], params("regex", logit_bias={digit: 100}), use_tqdm=False)
    assert output.outputs[0].text.startswith("777-")


def test_other_requests_of_the_same_steps_are_untouched(llm):
    plain = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    (alone,) = llm.generate([PROMPT], plain, use_tqdm=False)
    outputs = llm.generate([PROMPT] * 4, [params("regex"), plain, params("json"), plain], use_tqdm=False)
    assert [outputs[i].outputs[0].token_ids for i in (1, 3)] == [alone.outputs[0].token_ids] * 2


@pytest.mark.covers("GRAM-01")
@pytest.mark.parametrize("bad", [{"regex": "(("}, {"grammar": "root ::= nowhere"}, {"json": {"type": "nothing"}}])
def test_a_wrong_grammar_is_raised_and_names_the_field(llm, bad):
    wrong = SamplingParams(max_tokens=4, grammar=bad)
    field = f"grammar.{next(iter(bad))}"
    with pytest.raises(RequestError, match=r"^CORE-E160 the grammar cannot be used: ") as alone:
        llm.generate([PROMPT], wrong, use_tqdm=False)
    with pytest.raises(RequestError, match=r"^prompt 1: CORE-E160 the grammar cannot be used: ") as among:
        llm.generate([PROMPT] * 3, [params("choice"), wrong, params("choice")], use_tqdm=False)
    assert alone.value.param == among.value.param == field
    (good,) = llm.generate([PROMPT], params("choice"), use_tqdm=False)  # nothing is left behind
    assert holds("choice", good.outputs[0].text)


@pytest.mark.covers("GRAM-01")
def test_thinking_is_free_and_ends_within_its_budget(llm):
    thinking = Thinking("</think>", open=True, budget=7)
    asked = SamplingParams(
        temperature=1.0, seed=5, n=3, max_tokens=60, skip_special_tokens=False,
        grammar=Grammar("regex", "[0-9]{4}", thinking=thinking),
    )  # fmt: skip
    (output,) = llm.generate([PROMPT], asked, use_tqdm=False)
    thoughts = set()
    for one in output.outputs:
        thought, _, answer = one.text.partition("</think>")
        assert one.finish_reason == "stop" and re.fullmatch("[0-9]{4}", answer)
        thoughts.add(thought)
    assert len(thoughts) == 3


def greedy_texts(tiny, driver, prompts=(PROMPT,) * 3, **options):
    with LLM(tiny, **{**OPTIONS, **options}, structured_output=driver) as llm:
        names = ("json", "regex", "grammar")
        outputs = llm.generate(list(prompts), [params(name) for name in names], use_tqdm=False)
        llm.call("check")
        stats = llm.call("stats")
    return [output.outputs[0].token_ids for output in outputs], stats


@pytest.fixture(scope="module")
def plainly(tiny):
    """`plainly(driver)` -> the tokens of an engine that does one step after the other."""
    return functools.cache(lambda driver: greedy_texts(tiny, driver, overlap_depth=0)[0])


ALONE = [{"overlap_depth": 3, "prefix_caching": False}, {"executor": "subprocess"}, {"max_num_batched_tokens": 3}]
"""Ways to run an engine that know nothing of a driver: they are given masks."""


@pytest.mark.covers("GRAM-02")
@pytest.mark.parametrize(
    ("driver", "options"),
    [
        *((driver, {"overlap_depth": 1}) for driver in ("llguidance", "xgrammar")),
        *(("llguidance", options) for options in ALONE),
        *(pytest.param("xgrammar", options, marks=pytest.mark.exhaustive) for options in ALONE),
    ],
    ids=str,
)
def test_outputs_do_not_depend_on_how_the_engine_runs(plainly, driver, tiny, options):
    assert greedy_texts(tiny, driver, **options)[0] == plainly(driver)


def test_a_preempted_row_goes_on_in_its_grammar(driver, tiny):
    long = SamplingParams(temperature=0.0, max_tokens=90, grammar={"regex": "([0-9][a-c]){40}"})
    options = {"num_blocks": 9, "block_size": 16, "max_model_len": 112}
    with LLM(tiny, **{**OPTIONS, **options}, structured_output=driver) as llm:
        outputs = llm.generate([PROMPT] * 3, long, use_tqdm=False)
        assert llm.call("stats")["preemptions"] > 0
    assert all(re.fullmatch("([0-9][a-c]){40}", output.outputs[0].text) for output in outputs)


@pytest.mark.covers("GRAM-01")
def test_what_one_driver_cannot_compile_is_left_to_the_next(tiny):
    odd = {"type": "string", "pattern": "^a*$", "minLength": 2, "maxLength": 4}
    both = {"not": {"type": "null"}}
    with LLM(tiny, **OPTIONS, structured_output="xgrammar,llguidance") as llm:
        asked = [SamplingParams(max_tokens=20, temperature=0.0, grammar={"json": one}) for one in (odd, both)]
        (served,) = llm.generate([PROMPT], asked[0], use_tqdm=False)
        with pytest.raises(RequestError, match=r"xgrammar: .*; llguidance: "):
            llm.generate([PROMPT], asked[1], use_tqdm=False)
    assert re.fullmatch('"a{2,4}"', served.outputs[0].text)
