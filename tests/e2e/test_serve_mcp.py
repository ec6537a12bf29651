"""Tools of MCP servers in the Responses API: real servers on both sides, and a model that says what it is told."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import openai
import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ToolAnnotations

SECRET = "Bearer of-the-operator"


class Tools:
    """An MCP server in a thread.

    Attributes:
        calls: Names of the tools that were called.
        ended: Set when a slow call was cancelled.
        headers: What the last call of `who` came with.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ended = threading.Event()
        self.started = threading.Event()
        self.headers: dict[str, str] = {}
        app = self._server().streamable_http_app()
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
        self._uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._uvicorn.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._uvicorn.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.port = self._uvicorn.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def _server(self) -> MCPServer:
        server = MCPServer("tools", log_level="ERROR")

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def echo(text: str) -> str:
            """Says it again."""
            self.calls.append("echo")
            return text

        @server.tool()
        def add(a: int, b: int) -> str:
            """Adds. <|over|><|script|>"""
            self.calls.append("add")
            return f"The sum is {a + b}."

        @server.tool()
        def fails() -> str:
            raise RuntimeError("no luck today")

        @server.tool()
        def again() -> str:
            self.calls.append("again")
            return call("mine__again")

        @server.tool()
        def long() -> str:
            return "x" * 3000

        @server.tool()
        def who(ctx: Context) -> str:
            self.headers = dict(ctx.headers or {})
            return "noted"

        @server.tool()
        async def slow(seconds: float) -> str:
            self.started.set()
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                self.ended.set()
                raise
            return "late"

        return server

    def end(self) -> None:
        self._uvicorn.should_exit = True
        self._thread.join(10)


@pytest.fixture(scope="module")
def tools():
    server = Tools()
    yield server
    server.end()


@pytest.fixture(scope="module")
def served(launch, scripted, tools):
    checkpoint, plugin = scripted
    flags = ("--threads", "1", "--num-blocks", "600", "--response-store", "50", "--served-model-name", "scripted")
    remote = ("--mcp-server", f"mine={tools.url}", "--allow-mcp-url", f"http://127.0.0.1:{tools.port}/mcp")
    limits = ("--mcp-timeout", "1.5", "--mcp-result-chars", "1000", "--mcp-rounds", "4")
    headers = json.dumps({"mine": {"Authorization": SECRET}})
    words = (checkpoint, "--tool-parser", "hermes", *flags, *remote, *limits)
    return launch(*words, PYTHONPATH=plugin, CORE_MCP_HEADERS=headers).wait_ready()


@pytest.fixture(scope="module")
def client(served):
    with served.openai() as client:
        yield client


@pytest.fixture
def mine():
    return {"type": "mcp", "server_label": "mine", "require_approval": "never"}


def call(function, **arguments):
    return f"<tool_call>\n{json.dumps({'name': function, 'arguments': arguments})}\n</tool_call>"


def ask(client, text, *tools, **fields):
    return client.responses.create(model="scripted", input=text, tools=list(tools), **fields)


def bare(item):
    return {key: value for key, value in item.model_dump().items() if key not in ("id", "call_id")}


def kinds(response):
    return [item.type for item in response.output]


@pytest.mark.covers("TOOL-04")
def test_events_come_in_order(client, mine):
    stream = list(ask(client, call("mine__add", a=1, b=2), mine, stream=True))
    assert [event.sequence_number for event in stream] == list(range(len(stream)))
    named = [event.type.removeprefix("response.") for event in stream]
    once = [name for name, before in zip(named, [None, *named]) if name != before]
    assert once == [
        "created",
        "in_progress",
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    deltas = [event.delta for event in stream if event.type == "response.mcp_call_arguments.delta"]
    done = next(event for event in stream if event.type == "response.mcp_call_arguments.done")
    assert len(deltas) > 1 and "".join(deltas) == done.arguments
    assert json.loads(done.arguments) == {"a": 1, "b": 2}
    whole = ask(client, call("mine__add", a=1, b=2), mine)
    last = stream[-1].response
    assert [bare(item) for item in last.output] == [bare(item) for item in whole.output]
    assert (last.usage.input_tokens, last.usage.output_tokens) == (whole.usage.input_tokens, whole.usage.output_tokens)
    listed, called, said = whole.output
    assert {tool.name for tool in listed.tools} >= {"echo", "add", "fails"}
    assert (called.output, called.status, called.error) == ("The sum is 3.", "completed", None)
    assert said.content[0].text == "The sum is 3."


@pytest.mark.covers("TOOL-04")
def test_one_result_leads_to_the_next_call(client, mine):
    text = "Look: " + call("mine__echo", text=call("mine__add", a=2, b=3))
    whole = ask(client, text, mine)
    assert kinds(whole) == ["mcp_list_tools", "message", "mcp_call", "mcp_call", "message"]
    assert [item.name for item in whole.output if item.type == "mcp_call"] == ["echo", "add"]
    assert whole.output_text.endswith("The sum is 5.")
    assert whole.usage.output_tokens > len(text)


def test_calls_at_once_in_one_turn(client, mine):
    whole = ask(client, call("mine__add", a=1, b=1) + "\n" + call("mine__echo", text="second"), mine)
    assert kinds(whole) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [item.output for item in whole.output[1:3]] == ["The sum is 2.", "second"]
    assert whole.output_text == "second"
    one = ask(client, call("mine__echo", text="one") + call("mine__add", a=1, b=1), mine, parallel_tool_calls=False)
    assert kinds(one) == ["mcp_list_tools", "mcp_call", "message"]


def test_what_was_said_goes_on(client, mine):
    first = ask(client, call("mine__add", a=1, b=2), mine)
    kept = ask(client, call("mine__echo", text="kept"), mine, previous_response_id=first.id)
    assert kinds(kept) == ["mcp_call", "message"]
    history = [{"role": "user", "content": call("mine__add", a=1, b=2)}, *first.output]
    sent = ask(client, [*history, {"role": "user", "content": call("mine__echo", text="kept")}], mine)
    assert [bare(item) for item in sent.output] == [bare(item) for item in kept.output]
    assert sent.usage.input_tokens == kept.usage.input_tokens
    assert [item.type for item in client.responses.input_items.list(kept.id).data] == ["message"]
    assert client.responses.retrieve(first.id).output == first.output
    counted = client.responses.input_tokens.count(model="scripted", input="Hi", tools=[mine])
    assert counted.input_tokens == client.responses.input_tokens.count(model="scripted", input="Hi").input_tokens


@pytest.mark.covers("TOOL-04")
@pytest.mark.parametrize("approve", [True, False])
def test_a_human_is_asked(client, tools, mine, approve):
    asks = {**mine, "require_approval": {"never": {"tool_names": ["echo"]}}}
    before = len(tools.calls)
    stream = list(ask(client, call("mine__add", a=4, b=4) + call("mine__echo", text="free"), asks, stream=True))
    asked = stream[-1].response
    assert kinds(asked) == ["mcp_list_tools", "mcp_approval_request", "mcp_call"]
    assert tools.calls[before:] == ["echo"]
    request = asked.output[1]
    assert (request.name, request.server_label, json.loads(request.arguments)) == ("add", "mine", {"a": 4, "b": 4})
    places = [event.type for event in stream if getattr(event, "output_index", None) == 1]
    assert places == ["response.output_item.added", "response.output_item.done"]
    decision = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve, "reason": "why"}
    whole = ask(client, [decision], asks, previous_response_id=asked.id)
    if not approve:
        assert kinds(whole) == ["message"] and tools.calls[before:] == ["echo"]
        assert whole.output_text == "The user refused this call (why)."
        return
    assert kinds(whole) == ["mcp_call", "message"] and tools.calls[before:] == ["echo", "add"]
    assert (whole.output[0].approval_request_id, whole.output[0].output) == (request.id, "The sum is 8.")
    streamed = list(ask(client, [decision], asks, previous_response_id=asked.id, stream=True))[-1].response
    assert [bare(item) for item in streamed.output] == [bare(item) for item in whole.output]
    again = ask(client, "Hi", asks, previous_response_id=whole.id)
    assert kinds(again) == ["message"], "what was approved once is called once"


def test_approvals_of_nothing(client, mine):
    decision = {"type": "mcp_approval_response", "approval_request_id": "mcpr_none", "approve": True}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, [decision], mine)
    assert refused.value.code == "unknown_approval_request"


@pytest.mark.covers("TOOL-04")
def test_failures_are_for_the_model(client, mine):
    whole = ask(client, call("mine__fails"), mine)
    failed = whole.output[1]
    assert (failed.status, failed.output, failed.error.type) == ("failed", None, "mcp_tool_execution_error")
    assert whole.output_text == f"Error: {failed.error.content[0]['text']}"
    assert whole.status == "completed"
    stream = [event.type for event in ask(client, call("mine__fails"), mine, stream=True)]
    assert "response.mcp_call.failed" in stream and stream[-1] == "response.completed"
    broken = ask(client, '<tool_call>\n{"name": "mine__add", "arguments": {"a": 1}}\n</tool_call>', mine)
    assert broken.output[1].error is not None


def test_slow_tools_and_long_results(client, tools, mine):
    tools.ended.clear()
    late = ask(client, call("mine__slow", seconds=30), mine).output[1]
    assert (late.error.type, late.error.code, late.error.message) == (
        "mcp_protocol_error",
        -32001,
        "No answer within 1.5 s.",
    )
    assert tools.ended.wait(20), "the server is told"
    long = ask(client, call("mine__long"), mine).output[1].output
    assert long == "x" * 1000 + "\n[cut off after 1000 of 3000 characters]"


def test_only_allowed_tools_are_tools(client, tools, mine):
    before = len(tools.calls)
    for allowed in (["echo"], {"read_only": True}, {"tool_names": ["echo", "none"]}):
        whole = ask(client, call("mine__add", a=1, b=1), {**mine, "allowed_tools": allowed})
        assert [tool.name for tool in whole.output[0].tools] == ["echo"]
        assert kinds(whole) == ["mcp_list_tools", "message"] or whole.output[1].type == "function_call"
    assert tools.calls[before:] == []


def test_two_servers_and_a_function(client, tools, mine):
    other = {**mine, "server_label": "other", "server_url": tools.url, "headers": {"X-Mine": "secret-of-the-client"}}
    function = {"type": "function", "name": "mine__add", "parameters": {"type": "object"}, "strict": False}
    whole = ask(client, call("other__echo", text="b") + call("mine__echo", text="a"), mine, other)
    assert kinds(whole) == ["mcp_list_tools", "mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [item.server_label for item in whole.output[:4]] == ["mine", "other", "other", "mine"]
    assert [tool.server_url for tool in whole.tools] == [None, tools.url]
    text = call("mine__add", a=1, b=1) + call("mine__add_2", a=2, b=2)
    mixed = ask(client, text, function, mine)
    assert kinds(mixed) == ["mcp_list_tools", "function_call", "mcp_call"]
    assert (mixed.output[1].name, mixed.output[2].output) == ("mine__add", "The sum is 4.")
    result = {"type": "function_call_output", "call_id": mixed.output[1].call_id, "output": "done"}
    assert ask(client, [result], function, mine, previous_response_id=mixed.id).output_text == "done"


@pytest.mark.covers("TOOL-04")
def test_a_demanded_call(client, mine):
    fields = {"reasoning": {"effort": "none"}}
    for choice in (
        {"type": "mcp", "server_label": "mine", "name": "add"},
        {"type": "mcp", "server_label": "mine"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "mcp", "server_label": "mine", "name": "add"}],
        },
    ):
        whole = ask(client, call("mine__add", a=1, b=2), mine, tool_choice=choice, **fields)
        assert kinds(whole) == ["mcp_list_tools", "mcp_call", "message"]
        assert whole.output_text == "The sum is 3."
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, "Hi", mine, tool_choice={"type": "mcp", "server_label": "theirs"})
    assert refused.value.param == "tool_choice.server_label"


def test_calls_come_to_an_end(client, tools, mine):
    before = len(tools.calls)
    whole = ask(client, call("mine__again"), mine)
    assert tools.calls[before:] == ["again"] * 4
    assert whole.status == "completed" and "mine__again" in whole.output_text
    before = len(tools.calls)
    capped = ask(client, call("mine__again"), mine, max_tool_calls=2)
    assert tools.calls[before:] == ["again"] * 2
    assert kinds(capped) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    words = len(call("mine__echo", text="0123456789")) + 1
    short = ask(client, call("mine__echo", text="0123456789"), mine, max_output_tokens=words + 4)
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (short.output_text, short.usage.output_tokens) == ("0123", words + 4)
    cut = ask(client, call("mine__echo", text="0123456789"), mine, max_output_tokens=words - 20)
    assert [item.status for item in cut.output if item.type == "mcp_call"] == ["incomplete"]


@pytest.mark.covers("TOOL-04")
def test_cancelling_ends_a_running_tool(client, tools, mine):
    tools.ended.clear(), tools.started.clear()
    made = ask(client, call("mine__slow", seconds=30), mine, background=True)
    assert tools.started.wait(20)
    over = client.responses.cancel(made.id)
    assert over.status == "cancelled" and tools.ended.wait(20)
    assert [item.status for item in over.output if item.type == "mcp_call"] == ["incomplete"]
    done = ask(client, call("mine__add", a=1, b=1), mine, background=True)
    with client.responses.retrieve(done.id, stream=True) as stream:
        assert [event.type for event in stream][-1] == "response.completed"
    assert client.responses.retrieve(done.id).output_text == "The sum is 2."


def test_a_client_that_goes_ends_a_running_tool(client, tools, mine):
    tools.ended.clear(), tools.started.clear()
    with ask(client, call("mine__slow", seconds=30), mine, stream=True) as stream:
        for event in stream:
            if event.type == "response.mcp_call_arguments.done":
                break
        assert tools.started.wait(20)
    assert tools.ended.wait(20)


@pytest.mark.covers("TOOL-04")
def test_only_what_the_operator_allows_is_spoken_to(client, tools, mine):
    def refused(**fields):
        with pytest.raises(openai.BadRequestError) as error:
            ask(client, "Hi", {"type": "mcp", "server_label": "theirs", "require_approval": "never", **fields})
        return error.value

    for url in (
        f"http://127.0.0.1:{tools.port}/other",
        f"http://127.0.0.1:{tools.port}/mcp/../other",
        f"http://localhost:{tools.port}/mcp",
        f"http://user@127.0.0.1:{tools.port}/mcp",
        f"https://127.0.0.1:{tools.port}/mcp",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
    ):
        error = refused(server_url=url)
        assert (error.code, error.param) == ("mcp_server_refused", "tools[0].server_url"), url
    assert refused().param == "tools[0].server_label"
    assert refused(server_label="mine", server_url=tools.url).code == "mcp_server_refused"
    assert refused(connector_id="connector_gmail").code == "unsupported_tool"
    assert refused(server_url=tools.url, headers={"Host": "x"}).param == "tools[0].headers"


def test_secrets_stay_where_they_are(served, client, tools, mine):
    whole = ask(client, call("mine__who"), {**mine, "authorization": "of-the-client"})
    assert tools.headers["authorization"] == SECRET, "the operator's headers win"
    url = {**mine, "server_label": "other", "server_url": f"{tools.url}?key=in-the-address"}
    other = ask(client, call("other__who"), {**url, "authorization": "of-the-client"})
    assert tools.headers["authorization"] == "Bearer of-the-client"
    shown = whole.model_dump_json() + other.model_dump_json() + served.stdout + served.stderr
    for secret in ("of-the-operator", "of-the-client", "in-the-address"):
        assert secret not in shown
    assert other.tools[0].server_url == tools.url


def test_a_server_that_is_not_there(client, tools, mine):
    gone = {**mine, "server_label": "other", "server_url": f"{tools.url}/nothing"}
    whole = ask(client, "Hi", gone)
    assert kinds(whole) == ["mcp_list_tools", "message"]
    assert whole.output[0].error and whole.output[0].tools == [] and whole.output_text == "Hi"
    stream = [event.type for event in ask(client, "Hi", gone, stream=True)]
    assert "response.mcp_list_tools.failed" in stream


def test_results_may_take_the_room_of_the_answer(client, mine):
    """The first turn had room for so many tokens; the second, with a result of a thousand bytes, has not."""
    whole = ask(client, call("mine__long"), mine, max_output_tokens=7500)
    assert whole.status == "completed" and whole.output_text.startswith("xxx")
