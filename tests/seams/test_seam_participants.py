"""Participants of strangers: what they send, defer, refuse and constrain, and what their faults leave as it is."""

from __future__ import annotations

import pytest

from core import LLM, SamplingParams
from core.api import Caller, PluginError
from core_testing.conformance.kit import run
from core_testing.conformance.table import checks_of

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
OPTIONS = {"dtype": "float32", "num_blocks": 60, "block_size": 8}
BOTH = {**OPTIONS, "participant": ["shop", "choir"]}
LENGTHS = ((20, 0), (30, 1), (9, 2))
WAYS = [
    *(("inproc", depth) for depth in range(3)),
    ("subprocess", 1),
    *(pytest.param("subprocess", depth, marks=pytest.mark.exhaustive) for depth in (0, 2)),
]


def ids(outputs):
    return [output.outputs[0].token_ids for output in outputs]


def failure(outputs):
    """Return why the only request ended."""
    (output,) = outputs
    assert output.outputs[0].finish_reason == "error"
    return output.outputs[0].error


@pytest.fixture
def prompts(prompt):
    return [prompt(*one) for one in LENGTHS]


@pytest.fixture(scope="module")
def plain(llama):
    """Tokens of an engine without participants, of three prompts."""
    prompts = [{"prompt_token_ids": [3 + (i * 29 + seed * 7) % 90 for i in range(length)]} for length, seed in LENGTHS]
    with LLM(llama, **OPTIONS) as llm:
        return ids(llm.generate(prompts, GREEDY))


@pytest.mark.parametrize(("executor", "depth"), WAYS)
def test_requests_wait_for_an_item_and_others_go_on(plugins, llama, prompts, plain, executor, depth):
    plugins("participant")
    with LLM(llama, **BOTH, executor=executor, overlap_depth=depth) as llm:
        callers = [Caller("item:7"), Caller(), Caller("item:9")]
        assert ids(llm.generate(prompts, GREEDY, caller=callers)) == plain
        assert ids(llm.generate(prompts, GREEDY, caller=Caller("item:4"))) == plain  # alone: a step without rows
        assert llm.call("shop_items") == llm.call("worker", "shop_stock") == [4, 7, 9]
        assert llm.call("participant_stats") == {"shop": {"held": 1, "items": [4, 7, 9]}}
        assert llm.call("plugin_faults") == []
        llm.call("check")


@pytest.mark.parametrize(("executor", "depth"), WAYS)
def test_constrained_tokens_alternate_beside_others(plugins, llama, prompts, plain, executor, depth):
    plugins("participant")
    with LLM(llama, **BOTH, executor=executor, overlap_depth=depth) as llm:
        outputs = ids(llm.generate([*prompts, prompts[0]], GREEDY, caller=[*[Caller()] * 3, Caller("sings")]))
        assert outputs[:3] == plain
        assert [token % 2 for token in outputs[3]] == [1, 0] * 4
        assert llm.call("plugin_faults") == []


def test_other_keys_share_no_block(plugins, llama, prompts):
    plugins("participant")
    with LLM(llama, **BOTH) as llm:

        def cached(user):
            return llm.generate([prompts[1]], GREEDY, caller=Caller(user))[0].num_cached_tokens

        assert [cached(""), cached(""), cached("item:1"), cached("item:1"), cached("item:2")] == [0, 24, 0, 24, 0]
        assert [cached("mark:a"), cached("mark:a"), cached("mark:b")] == [8, 24, 8]  # the second block has a mark


@pytest.mark.parametrize("user", ["banned", "unwelcome"])
def test_a_request_is_refused_alone(plugins, llama, prompts, plain, user):
    plugins("participant")
    with LLM(llama, **BOTH) as llm:
        assert "the shop" in failure(llm.generate(prompts[:1], GREEDY, caller=Caller(user)))
        assert ids(llm.generate(prompts, GREEDY)) == plain
        assert llm.call("plugin_faults") == []


def test_a_misspelt_moment_is_refused_by_name(plugins, llama):
    plugins("participant")
    with pytest.raises(PluginError, match=r"CORE-P160.*misspelt.*settel"):
        LLM(llama, **OPTIONS, participant=["misspelt"])


ENGINE = (
    *("supply", "place", "publish", "run", "leave", "pending", "plan", "collect"),
    *("settle", "finished", "finish", "reset", "stats", "close"),
)
ANSWERS = ("supply", "settle", "stats", "finished")
ACROSS = [("at", "begin"), ("at", "sampled"), ("at", "end"), ("wrong", "plan"), ("wrong", "begin"), ("wrong", "end")]
HARMLESS = [
    *(("inproc", "at", name) for name in ENGINE),
    *(("inproc", "wrong", name) for name in ANSWERS),
    *((executor, *one) for executor in ("inproc", "subprocess") for one in ACROSS),
]
SCARCE = {"num_blocks": 9, "max_model_len": 40}


@pytest.mark.parametrize(("executor", "how", "name"), HARMLESS)
def test_a_fault_is_named_and_changes_no_token(plugins, llama, prompts, plain, executor, how, name):
    plugins("participant")
    options = {**OPTIONS, **(SCARCE if name == "leave" else {}), "plugin_options": {"brittle": {how: name}}}
    with LLM(llama, **options, participant=["brittle"], executor=executor) as llm:
        assert ids(llm.generate(prompts, GREEDY)) == plain
        llm.call("reset_prefix_cache")
        llm.call("participant_stats")
        faults = llm.call("plugin_faults")
        llm.call("check")
    assert [fault["name"] for fault in faults] == ["brittle"] * (name != "close")
    assert name == "close" or name in faults[0]["last"]


@pytest.mark.parametrize("name", ["arrive", "admit"])
def test_a_request_that_a_fault_is_about_ends_alone(plugins, llama, prompts, plain, name):
    plugins("participant")
    with LLM(llama, **OPTIONS, participant=["brittle"], plugin_options={"brittle": {"at": name}}) as llm:
        error = failure(llm.generate(prompts[:1], GREEDY, caller=Caller("victim")))
        assert "CORE-P108 participant 'brittle'" in error and f"{name} is broken" in error
        assert ids(llm.generate(prompts, GREEDY)) == plain
        assert [fault["name"] for fault in llm.call("plugin_faults")] == ["brittle"]


@pytest.mark.parametrize("executor", ["inproc", "subprocess"])
@pytest.mark.parametrize("how", ["at", "wrong"])
@pytest.mark.parametrize("name", ["inputs", "late", "allow"])
def test_what_would_make_tokens_wrong_ends_that_step(plugins, llama, prompts, plain, how, name, executor):
    plugins("participant")
    options = {**OPTIONS, "participant": ["brittle"], "plugin_options": {"brittle": {how: name}}, "executor": executor}
    with LLM(llama, **options) as llm:
        error = failure(llm.generate(prompts[:1], GREEDY))
        assert "CORE-P108 participant 'brittle'" in error and f"{name}() raised" in error
        assert ids(llm.generate(prompts, GREEDY)) == plain
        llm.call("check")


@pytest.mark.parametrize("name", ["shop", "choir"])
def test_they_pass_the_checks_of_their_kind(plugins, name):
    plugins("participant")
    names = [check.name for check in checks_of("participants")]
    (report,) = run(f"participants:{name}", checks=names).plugins
    assert {one.check for one in report.outcomes} == set(names)
    assert [(one.check, one.message) for one in report.failures] == []
