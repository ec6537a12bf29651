"""Bounded thinking, repetition and offsets of tokens, over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from core.api.grammars import Grammar, Thinking
from core.api.parsers import ThinkingTags
from core.api.repetition import RepetitionDetection
from core.api.sampling_params import SamplingParams
from core.frontend.answering.parsing import AnswerParser
from core.frontend.answering.thinking import after_thinking

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]
BODIES = {CHAT: {"messages": USER}, COMPLETIONS: {"prompt": "a"}, "/v1/responses": {"input": "a"}}
REPEATS = {"max_pattern_size": 4, "min_pattern_size": 2, "min_count": 3}


@pytest.mark.parametrize("path", BODIES)
def test_the_fields_reach_the_engine(api, llm, path):
    fields = {"thinking_token_budget": 0, "repetition_detection": REPEATS}
    assert api.post(path, {**BODIES[path], **fields}).status_code == 200
    asked = llm.requests[0]["params"]
    assert asked.thinking_token_budget == 0
    assert asked.repetition_detection == RepetitionDetection(4, 2, 3)
    for name, wrong in (
        ("thinking_token_budget", -2),
        ("thinking_token_budget", 1.5),
        ("repetition_detection", {"max_pattern_size": 3, "min_count": 1}),
        ("repetition_detection", {"size": 3}),
        ("repetition_detection", 3),
    ):
        error = api.post(path, {**BODIES[path], name: wrong}).json()["error"]
        assert error["param"].partition(".")[0] == name, (wrong, error)
    assert len(llm.requests) == 1


def test_the_finish_reason_is_told_and_counted(build, fake):
    class Repeating(fake):
        def _output(self, *args):
            output = super()._output(*args)
            if output.finish_reason is not None:
                output.finish_reason, output.stop_reason = "repetition", "repetition_detected"
            return output

    api = build(Repeating())
    for path in (CHAT, COMPLETIONS):
        choice = api.post(path, BODIES[path]).json()["choices"][0]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("repetition", "repetition_detected")
    assert (
        'core_request_success_total{finished_reason="repetition",model_name="acme/tiny"} 2.0'
        in api.get("/metrics").text
    )
    assert api.post("/v1/responses", BODIES["/v1/responses"]).json()["status"] == "incomplete"


def parser(tags):
    return AnswerParser(lambda ctx: None, thinking=lambda ctx: tags)


def test_the_parser_says_where_the_thinking_is():
    bounded = SamplingParams(thinking_token_budget=5)
    tags = ThinkingTags("</t>", "<t>", True)
    found = after_thinking(bounded, parser(tags), None)
    assert (found.thinking, found.thinking_token_budget) == (Thinking("</t>", "<t>", True), 5)
    # Behind a template that has closed the thought already there is nothing to bound.
    assert after_thinking(bounded, parser(None), None).thinking_token_budget is None
    # Without one that knows, the front end looks at the vocabulary.
    assert after_thinking(bounded, None, None) is bounded
    structured = bounded.replace(grammar=Grammar("json_object"))
    found = after_thinking(structured, parser(tags), None)
    assert (found.grammar.thinking, found.thinking) == (Thinking("</t>", "<t>", True), None)


def test_offsets_where_requests_are_rendered(build, fake):
    class Telling(fake):
        async def token_offsets(self, asked, ids):
            await asyncio.sleep(0)
            return [(0, 0), *((place, place + 1) for place in range(len(ids) - 1))]

    api = build(Telling())
    asked = {"return_token_offsets": True}
    shown = api.post(f"{COMPLETIONS}/render", {"prompt": "abc", **asked}).json()[0]
    assert shown["token_offsets"] == [[0, 0], [0, 1], [1, 2], [2, 3]]
    shown = api.post(f"{CHAT}/render", {**BODIES[CHAT], **asked}).json()
    assert len(shown["token_offsets"]) == shown["count"]
    assert "token_offsets" not in api.post(f"{CHAT}/render", BODIES[CHAT]).json()
    for path in (CHAT, COMPLETIONS):
        answer = api.post(path, {**BODIES[path], **asked})
        assert answer.headers["x-core-ignored-fields"] == "return_token_offsets"
