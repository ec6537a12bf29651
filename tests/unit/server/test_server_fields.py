"""Every field of a request: honoured, refused with a sentence, or named as ignored; and the page that says which."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from pathlib import Path

import httpx
import pytest
from core_plugin_openai.protocol import REFUSED, ChatBody, CompletionBody

from core.api.errors import RequestError
from core.api.parsers import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.frontend.prompts import prompt_ids
from core.frontend.templating import Template, time_limit
from core_testing.templates import CompiledTemplate

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
PAGE = (Path(__file__).parents[3] / "docs/http-api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (honoured|refused|ignored) \| ?(.*?) ?\|$", re.MULTILINE)
FROM_TEMPLATE = {"reasoning_effort"}


def tables() -> dict[str, list[tuple[str, str, str]]]:
    part = PAGE.partition("## Fields of generation requests")[2].partition("\n## ")[0]
    names = ("both", "chat", "completions", "old")
    return dict(zip(names, [ROW.findall(text) for text in re.split(r"\n[^|\n]*:\n\n(?=\|)", part)[1:]], strict=True))


def stream(response):
    lines = [line for line in response.text.split("\n\n") if line]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


# -- the page ------------------------------------------------------------------------------------------------------


def test_the_page_knows_every_field():
    found = tables()
    chat, plain = found["both"] + found["chat"], found["both"] + found["completions"]
    assert (len(chat), len(plain)) == (74, 62)
    for rows, body in ((chat, ChatBody), (plain, CompletionBody)):
        rows = rows + found["old"]
        honoured = {name for name, state, _ in rows if state == "honoured"}
        assert honoured - FROM_TEMPLATE == set(body.model_fields)
        assert {name: why for name, state, why in rows if state == "refused"}.items() <= REFUSED.items()
        assert not {name for name, state, _ in rows if state == "ignored"} & {*body.model_fields, *REFUSED}
    assert {name for rows in found.values() for name, state, _ in rows if state == "refused"} == set(REFUSED)


@pytest.mark.covers("API-04")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refusals_say_why(api, llm, path, name):
    fields = {"messages": USER} if path == CHAT else {"prompt": "a"}
    value = 3 if name == "best_of" else {"x": 1}
    error = api.post(path, {**fields, name: value}).json()["error"]
    assert (error["param"], error["code"]) == (name, "unsupported_parameter")
    assert error["message"] == f"{name}: {REFUSED[name]}." and not llm.requests
    for harmless in (None, False, 1 if name == "best_of" else []):
        assert api.post(path, {**fields, name: harmless}).status_code == 200


def test_unknown_fields_are_named_or_refused(build, llm):
    body = {"messages": USER, "user": "u", "session_id": "s", "frobnicate": 1}
    answer = build(llm).post(CHAT, body)
    assert answer.headers["x-core-ignored-fields"] == "frobnicate,session_id"
    strict = build(llm, strict_fields=True)
    for path, fields in (
        (CHAT, body),
        (COMPLETIONS, {"prompt": "a", "frobnicate": 1}),
        ("/tokenize", {"prompt": "a", "frobnicate": 1}),
    ):
        answer = strict.post(path, fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, "frobnicate", "unknown_field")
    assert strict.post(CHAT, {"messages": USER, "temperature": 0}).status_code == 200


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": 9, "min_tokens": 10}, "min_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": True, "top_logprobs": 129}, "top_logprobs"),
        ({"vllm_xargs": {str(number): 1 for number in range(65)}}, "vllm_xargs"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs"),
        ({"request_id": "a b"}, "request_id"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncation_side": "left"}, "truncation_side"),
        ({"truncate_prompt_tokens": 4, "truncation_side": "top"}, "truncation_side"),
        ({"stream_interval": 0}, "stream_interval"),
        ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "sub"}}}, "tool_choice"),
    ],
    ids=str,
)
def test_errors_name_the_field_as_it_was_sent(api, fields, param):
    answer = api.post(CHAT, {"messages": USER, **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param and param in error["message"]


def test_what_the_engine_side_refuses_is_named_too(build, fake):
    class Refusing(fake):
        def _checked(self, request):
            raise RequestError("your prompt resulted in 600 tokens", param="prompt", code="context_length_exceeded")

    api = build(Refusing())
    error = api.post(CHAT, {"messages": USER}).json()["error"]
    assert (error["param"], error["message"]) == ("messages", "your messages resulted in 600 tokens")
    assert api.post(COMPLETIONS, {"prompt": "a"}).json()["error"]["param"] == "prompt"


# -- fields --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_prompts_may_be_cut(api, llm, path):
    long = "x" * 600
    fields = {"messages": [{"role": "user", "content": long}]} if path == CHAT else {"prompt": long}
    assert api.post(path, fields).status_code == 400
    seen = []
    llm.render_chat = lambda request: seen.append(request) or prompt_ids((1, 2))
    llm._checked = lambda request: seen.append(request) or prompt_ids((1, 2))
    cut = {"truncate_prompt_tokens": 9, "truncation_side": "right"}
    assert api.post(path, {**fields, **cut, "max_tokens": 7}).status_code == 200
    cut, room = seen[0].cut
    assert (cut.tokens, cut.side, room) == (9, "right", 7)
    assert path == CHAT or seen[0].prompt == long


def test_streams_may_gather_tokens(build, fake):
    api = build(fake(reply="abcdefg"), stream_interval=2)
    for fields, expected in (({}, ["a", "bc", "de", "fg"]), ({"stream_interval": 4}, ["a", "bcde", "fg"])):
        body = {"prompt": "p", "stream": True, "return_token_ids": True, "logprobs": 0, **fields}
        choices = [chunk["choices"][0] for chunk in stream(api.post(COMPLETIONS, body))]
        assert [choice["text"] for choice in choices] == expected
        assert [len(choice["token_ids"]) for choice in choices] == list(map(len, expected))
        assert [len(choice["logprobs"]["tokens"]) for choice in choices] == list(map(len, expected))
        assert choices[-1]["finish_reason"] == "stop"
    assert api.post(COMPLETIONS, {"prompt": "p"}).json()["choices"][0]["text"] == "abcdefg"


@pytest.mark.covers("API-02")
def test_tokens_by_id(build, fake):
    chat, plain = {"messages": USER, "logprobs": True, "top_logprobs": 1}, {"prompt": "p", "logprobs": 1}
    for api, extra in (
        (build(fake(), return_tokens_as_token_ids=True), {}),
        (build(fake()), {"return_tokens_as_token_ids": True}),
    ):
        entry = api.post(CHAT, {**chat, **extra}).json()["choices"][0]["logprobs"]["content"][0]
        assert (entry["token"], entry["top_logprobs"][0]["token"]) == ("token_id:72", "token_id:72")
        scores = api.post(COMPLETIONS, {**plain, **extra}).json()["choices"][0]["logprobs"]
        assert scores["tokens"][0] == "token_id:72" and set(scores["top_logprobs"][0]) == {"token_id:72"}
    off = {"return_tokens_as_token_ids": False}
    entry = build(fake(), return_tokens_as_token_ids=True).post(CHAT, {**chat, **off}).json()["choices"][0]["logprobs"]
    assert entry["content"][0]["token"] == "H"


def test_the_clients_own_request_id(api, llm):
    answers = [api.post(path, {**fields, "request_id": "job-7"}).json()["id"] for path, fields in REQUESTS]
    assert answers == ["chatcmpl-job-7", "cmpl-job-7"]
    assert len({request["id"] for request in llm.requests}) == 2
    assert all("job-7" not in request["id"] for request in llm.requests)


REQUESTS = [(CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "p"})]


def test_the_prompts_text_is_told(api):
    chat = api.post(CHAT, {"messages": USER, "return_prompt_text": True}).json()
    assert chat["prompt_text"] == "<s>[user]Hi"
    assert stream(api.post(CHAT, {"messages": USER, "return_prompt_text": True, "stream": True}))[0]["prompt_text"]
    choice = api.post(COMPLETIONS, {"prompt": "once", "return_prompt_text": True}).json()["choices"][0]
    assert (choice["prompt_text"], choice["text"]) == ("once", "Hello")


def test_arguments_of_plugins(api, llm):
    api.post(CHAT, {"messages": USER, "vllm_xargs": {"bias": [1, 2]}})
    assert llm.requests[0]["params"].extra_args == {"bias": [1, 2]}


class TwoCalls:
    """Thinks, then calls twice."""

    def __init__(self, ctx):
        self.done = False

    def feed(self, text, token_ids=()):
        if self.done:
            return []
        self.done = True
        calls = [[ToolStart(n, "add"), ToolArguments(n, "{}"), ToolEnd(n)] for n in (0, 1)]
        return [Reasoning("hm"), Text("so"), *calls[0], *calls[1]]

    def finish(self):
        return []


def test_what_is_not_shown(build, fake):
    api = build(fake(), parser=TwoCalls, tool_parser="two")
    body = {"messages": USER, "tools": [TOOL]}

    def message(**fields):
        return api.post(CHAT, {**body, **fields}).json()["choices"][0]["message"]

    assert (message()["reasoning"], len(message()["tool_calls"])) == ("hm", 2)
    assert "reasoning" not in message(include_reasoning=False)
    assert len(message(parallel_tool_calls=False)["tool_calls"]) == 1
    assert message(include_reasoning=False, parallel_tool_calls=False)["content"] == "so"


@pytest.mark.parametrize("effort", ["low", "none"])
def test_effort_goes_to_templates_that_know_it(build, fake, effort):
    llm = fake()
    llm.template_variables = frozenset({"reasoning_effort", "enable_thinking"})
    answer = build(llm).post(CHAT, {"messages": USER, "reasoning_effort": effort})
    assert "x-core-ignored-fields" not in answer.headers
    assert llm.rendered[0]["reasoning_effort"] == effort
    assert llm.rendered[0].get("enable_thinking") is (False if effort == "none" else None)
    own = {"reasoning_effort": "high", "enable_thinking": True}
    build(llm).post(CHAT, {"messages": USER, "reasoning_effort": effort, "chat_template_kwargs": own})
    assert own.items() <= llm.rendered[1].items()


def test_variables_that_no_template_reads_are_named(build, fake):
    llm = fake()
    llm.template_variables = frozenset({"mood"})
    body = {"messages": USER, "chat_template_kwargs": {"mood": "calm", "colour": "red", "enable_thinking": False}}
    answer = build(llm).post(CHAT, body)
    assert answer.headers["x-core-ignored-fields"] == "chat_template_kwargs.colour,chat_template_kwargs.enable_thinking"
    answer = build(llm, parser=TwoCalls, tool_parser="two").post(CHAT, body)  # which looks at the switch
    assert answer.headers["x-core-ignored-fields"] == "chat_template_kwargs.colour"
    error = build(llm, strict_fields=True).post(CHAT, body).json()["error"]
    assert error["param"] == "chat_template_kwargs.colour"


def test_tools_and_documents_that_nothing_reads_are_named(build, fake):
    llm = fake()
    llm.template_variables = frozenset({"mood"})
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"messages": USER, "tools": tools, "documents": [{"text": "x"}]}
    assert build(llm).post(CHAT, body).headers["x-core-ignored-fields"] == "documents,tools"
    read = build(llm, parser=TwoCalls, tool_parser="two").post(CHAT, body)
    assert read.headers["x-core-ignored-fields"] == "documents"
    llm.template_variables = frozenset({"tools", "documents"})
    assert "x-core-ignored-fields" not in build(llm).post(CHAT, body).headers


# -- templates of requests -----------------------------------------------------------------------------------------


class Rendering:
    """Renders with real templates."""

    def __init__(self, llm):
        self.template = "{{ messages[0].content }}"
        self.threads = []
        llm.render_chat = self

    def __call__(self, request):
        chat = request.chat
        self.threads.append(threading.current_thread())
        template = Template("jinja", CompiledTemplate(chat.template or self.template, {}).template)
        with contextlib.nullcontext() if chat.template is None else time_limit(1.5):
            return prompt_ids(list("".join(template.pieces(chat, {})).encode()))


def test_templates_of_requests_are_run_if_trusted(build, llm):
    body = {"messages": USER, "chat_template": "<{{ messages[0].content }}>"}
    for path in (CHAT, "/tokenize"):
        error = build(llm).post(path, body).json()["error"]
        assert (error["param"], error["code"]) == ("chat_template", "unsupported_parameter")
    rendering = Rendering(llm)
    trusting = build(llm, trust_request_chat_template=True)
    assert trusting.post(CHAT, body).status_code == 200
    assert bytes(llm.requests[-1]["ids"]) == b"<Hi>"
    assert rendering.threads[-1] is not threading.main_thread()


def test_a_slow_template_is_run_beside_the_event_loop(build, llm):
    rendering = Rendering(llm)
    api = build(llm)
    assert api.post(CHAT, {"messages": USER}).status_code == 200
    assert [thread is threading.main_thread() for thread in rendering.threads] == [True]
    rendering.template = "{% for i in range(99999) %}{% endfor %}{{ messages[0].content }}"
    rendering.threads.clear()
    assert api.post(CHAT, {"messages": USER}).status_code == 200
    assert [thread is threading.main_thread() for thread in rendering.threads] == [True, False]


@pytest.mark.covers("REND-07")
def test_a_hostile_template_costs_its_own_request(live, fake):
    llm = fake()
    Rendering(llm)
    hostile = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    with live(llm, trust_request_chat_template=True) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        answers = []
        body = {"messages": USER, "chat_template": hostile}
        thread = threading.Thread(target=lambda: answers.append(client.post(CHAT, json=body)))
        thread.start()
        time.sleep(0.3)
        others = [httpx.post(f"{server.url}{CHAT}", json={"messages": USER}, timeout=30) for _ in range(5)]
        still_running = thread.is_alive()
        thread.join()
    assert still_running and [answer.status_code for answer in others] == [200] * 5
    error = answers[0].json()["error"]
    assert (answers[0].status_code, error["code"]) == (400, "template_timeout")
