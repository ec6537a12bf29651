"""What coding agents send to the Messages API: all of it is answered, or refused in Anthropic's words."""

from __future__ import annotations

import asyncio
import json

import anthropic
import httpx2
import pytest

from core.api.parsers import Text, ThinkingTags
from core.frontend.answering.parsing import AnswerParser

PATH = "/v1/messages"
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "$schema": "http://json-schema.org/draft-07/schema#",
}
READ = {"name": "Read", "description": "Reads a file.", "input_schema": SCHEMA, **CACHED, "eager_input_streaming": True}
USE = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a.py"}, "caller": {"type": "direct"}}
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,fine-grained-tool-streaming-2025-05-14",
}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def turn(*blocks, role="user"):
    return {"role": role, "content": list(blocks)}


def session(*results):
    """A request in the middle of an agent's work."""
    return {
        "model": "acme/tiny",
        "max_tokens": 32000,
        "stream": True,
        "temperature": 1,
        "metadata": {"user_id": "user_1"},
        "system": [text("You are an agent.", **CACHED), text("Be careful.", **CACHED)],
        "thinking": {"type": "enabled", "budget_tokens": 31999},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "tools": [READ, {"name": "Bash", "input_schema": {"type": "object"}, "type": "custom"}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "stop_sequences": ["</stop>"],
        "messages": [
            turn(text("<reminder>"), text("Fix it.", **CACHED)),
            turn({"type": "thinking", "thinking": "Hm.", "signature": "x"}, text("Reading."), USE, role="assistant"),
            turn(*results),
            {"role": "system", "content": [text("Time is short.")]},
        ],
    }


def result(content=None, **more):
    return {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        **({} if content is None else {"content": content}),
        **more,
    }


class Thinker:
    """A parser that knows where the thinking is."""

    def feed(self, text, token_ids=()):
        return [Text(text)]

    def finish(self):
        return []


def thinking_api(api_type, llm, options, app_of):
    parser = AnswerParser(lambda ctx: Thinker(), thinking=lambda ctx: ThinkingTags("</think>", "<think>", True))
    return api_type(app_of(llm, options(), parser=parser))


@pytest.mark.covers("API-01")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = 1", "x = 1"),
        ([text("x = 1", **CACHED), text("y = 2")], "x = 1\ny = 2"),
        ([], ""),
        (None, ""),
        ([{"type": "document", "title": "a.txt", "source": {"type": "text", "data": "x"}}], "a.txt\nx"),
        ([{"type": "document", "source": {"type": "content", "content": [text("x"), text("y")]}}], "x\ny"),
        ([{"type": "document", "source": {"type": "content", "content": "x"}, "context": "Old."}], "Old.\nx"),
        ([{"type": "search_result", "title": "T", "source": "http://s", "content": [text("x")]}], "T\nhttp://s\nx"),
    ],
    ids=["text", "blocks", "empty", "missing", "document", "parts", "context", "search"],
)  # fmt: skip
def test_a_session_is_answered(build, fake, content, said):
    llm = fake(reply="Done.")
    answer = build(llm).post(f"{PATH}?beta=true", session(result(content)), headers=HEADERS)
    assert answer.status_code == 200 and '"message_stop"' in answer.text
    ignored = answer.headers["x-core-ignored-fields"].split(",")
    assert ignored == ["context_management", "thinking.budget_tokens"]
    found = llm.rendered[0]["messages"]
    assert [message["role"] for message in found] == ["system", "user", "assistant", "tool", "system"]
    assert (found[3]["content"], found[2]["reasoning"], found[4]["content"]) == (said, "Hm.", "Time is short.")
    failed = session(result(content, is_error=True))
    build(llm).post(PATH, failed)
    assert llm.rendered[1]["messages"][3]["content"] == f"Error: {said}"


def test_counting_takes_the_same_fields(build, fake):
    llm = fake()
    body = {key: value for key, value in session(result("x")).items() if key not in ("max_tokens", "stream")}
    answer = build(llm).post(f"{PATH}/count_tokens?beta=true", body, headers=HEADERS)
    assert answer.status_code == 200 and answer.json()["input_tokens"] > 50
    assert [tool["function"]["name"] for tool in llm.rendered[0]["tools"]] == ["Read", "Bash"]


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]}, "tools[0].type"),
        ({"mcp_servers": [{"type": "url", "url": "https://tools", "name": "t"}]}, "mcp_servers"),
        ({"container": "container_1"}, "container"),
        ({"messages": [turn({"type": "image", "source": {"type": "base64"}})]}, "messages[0].content[0]"),
        ({"messages": [turn({"type": "hologram"})]}, "hologram"),
        ({"messages": [turn({"type": "server_tool_use", "name": "web_search"}, role="assistant")]}, "server_tool_use"),
        ({"messages": [turn({"type": "document", "source": {"type": "url"}})]}, "messages[0].content[0].source"),
        ({"messages": [turn({"type": "document"})]}, "messages[0].content[0].source"),
        ({"messages": [turn({"type": "search_result", "title": "T"})]}, "messages[0].content[0].source"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"messages": [turn(USE, role="assistant"), turn(result([{"type": "image"}]))]}, "[1].content[0].content[0]"),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
def test_what_cannot_be_done_is_refused_by_name(build, fake, change, named, path):
    llm = fake()
    answer = build(llm).post(path, {**session(result("x")), **change}, headers=HEADERS)
    error = answer.json()
    assert (answer.status_code, error["type"], error["error"]["type"]) == (400, "error", "invalid_request_error")
    assert named in error["error"]["message"] and llm.requests == []


@pytest.mark.covers("REASON-01")
def test_a_budget_is_honoured_where_the_thinking_is_known(api, options, fake, app_of):
    llm = fake()
    known = thinking_api(type(api), llm, options, app_of)
    answer = known.post(PATH, {**session(result("x")), "max_tokens": 50})
    assert "thinking.budget_tokens" not in answer.headers["x-core-ignored-fields"]
    params = llm.requests[0]["params"]
    assert (params.thinking_token_budget, params.thinking.end, params.thinking.open) == (31999, "</think>", True)
    for thinking in ({"type": "adaptive"}, {"type": "disabled"}):
        known.post(PATH, {**session(result("x")), "thinking": thinking})
    assert [request["params"].thinking_token_budget for request in llm.requests[1:]] == [None, None]
    assert llm.rendered[2]["enable_thinking"] is llm.rendered[2]["thinking"] is False


def test_a_switch_that_the_template_does_not_read_is_named(build, fake):
    body = {**session(result("x")), "thinking": {"type": "disabled"}}
    llm = fake()
    for variables, named in ((frozenset({"enable_thinking"}), False), (frozenset({"tools"}), True)):
        llm.template_variables = variables
        ignored = build(llm).post(PATH, body).headers["x-core-ignored-fields"].split(",")
        assert ("thinking" in ignored) is named


def test_the_older_field_of_structured_output(build, fake):
    llm = fake(grammars=True)
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body = {"messages": [turn(text("Hi"))], "max_tokens": 9, "output_format": {"type": "json_schema", "schema": schema}}
    assert build(llm).post(PATH, body).status_code == 200
    grammar = llm.requests[0]["params"].grammar
    assert (json.loads(grammar.value), grammar.param) == (schema, "output_format.schema")
    both = build(llm).post(PATH, {**body, "output_config": {"format": body["output_format"]}})
    assert both.status_code == 400 and "output_format" in both.json()["error"]["message"]


@pytest.mark.covers("API-01")
def test_models_in_the_form_of_each_client(build, fake):
    api = build(fake(), api_key="k")
    keyed = {**HEADERS, "x-api-key": "k"}
    assert api.get("/v1/models", headers={"x-api-key": "k"}).json()["object"] == "list"
    page = api.get("/v1/models?limit=1000", headers=keyed).json()
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("acme/tiny", "acme/tiny", False)
    assert page["data"][0]["max_input_tokens"] == 512
    assert api.get("/v1/models?after_id=acme/tiny", headers=keyed).json()["data"] == []
    for path, headers, kind in (
        ("/v1/models/other", keyed, "not_found_error"),
        ("/v1/models", HEADERS, "authentication_error"),
        (f"{PATH}/batches", {"x-api-key": "k"}, "not_found_error"),
        ("/v1/files", keyed, "not_found_error"),
    ):
        assert api.get(path, headers=headers).json()["error"]["type"] == kind

    async def listed():
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(api.app))
        async with anthropic.AsyncAnthropic(
            base_url="http://test", api_key="k", http_client=http, _strict_response_validation=True
        ) as client:
            return [model async for model in client.models.list()], await client.models.retrieve("acme/tiny")

    (first,), same = asyncio.run(listed())
    assert first == same and (first.id, first.type, first.created_at.year > 2000) == ("acme/tiny", "model", True)
    assert not first.model_extra
