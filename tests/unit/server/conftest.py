"""A scripted front end, and three ways to reach the server: in memory, over a socket, and by the official client."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import httpx
import pytest
import uvloop
from core_plugin_admin.manifest import ADMIN
from core_plugin_admin.routes import AdminRoutes
from core_plugin_anthropic.manifest import ANTHROPIC
from core_plugin_anthropic.routes import AnthropicRoutes
from core_plugin_openai.manifest import OPENAI, RESPONSES
from core_plugin_openai.responses.routes import ResponsesRoutes
from core_plugin_openai.routes import OpenAIRoutes
from core_plugin_pooling.manifest import POOLING
from core_plugin_pooling.routes import PoolingRoutes
from core_plugin_resumable.manifest import RESUMABLE
from core_plugin_resumable.routes import ResumableRoutes
from core_plugin_vllm_flags.figures import VllmFigures
from core_plugin_vllm_flags.manifest import FIGURES

from core.api.errors import EngineError, RequestError
from core.api.parsers import Reasoning, Text, ToolArguments, ToolEnd, ToolStart
from core.config.fields import option_fields
from core.config.resolved import Options, SelectOptions
from core.engine.messages import Stats
from core.frontend.answering.parsing import AnswerParser
from core.frontend.inputs import InputProcessor
from core.frontend.output_stream import IteratedFeed
from core.frontend.prompts import prompt_ids, split_prompt
from core.frontend.results import CompletionOutput, Logprob, RequestOutput
from core.frontend.spelling import spelling
from core.options.engine import SchedulerOptions
from core.options.server import ServerOptions
from core.server.http import HttpServer
from core.server.listen import bind
from core_testing.served import served_app

FAULT = {"group": "core.schedulers", "name": "odd", "faults": 2, "last": "key() raised KeyError"}
MODEL = "acme/tiny"
BOS = 256


class ByteTokenizer:
    vocab_size = 300
    eos_ids = (257,)
    bos_id = BOS
    chat_template = "yes"
    response_template = None
    special_ids = frozenset({256, 257})

    def encode(self, text, *, add_special_tokens=True):
        return ([BOS] if add_special_tokens else []) + list(text.encode())

    def encode_batch(self, texts, *, add_special_tokens=True):
        return [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]

    def decode(self, ids, *, skip_special_tokens=True):
        text = bytes(token for token in ids if token < 256).decode("utf-8", "replace")
        return text if skip_special_tokens else "<s>" * (BOS in ids) + text

    def token(self, token_id):
        return chr(token_id) if token_id < 256 else f"<{token_id}>"


def given_to_template(chat):
    """Return what a template reads beside the messages, by name."""
    given = chat.template_input()
    names = ("tools", "add_generation_prompt", "continue_final_message", "documents")
    return {**{name: getattr(given, name) for name in names}, **given.variables}


def joined(content):
    """Do what templates that know no parts are given."""
    return "\n".join(part["text"] for part in content) if isinstance(content, list) else content


@dataclass
class FakeLLM:
    """Answers `reply` (a text, or one per sequence) token by token; records what became of each request.

    `hold` stops every sequence before its token number `hold_at` until it is set.
    """

    reply: str | list[str] = "Hello"
    model_name: str = MODEL
    max_model_len: int = 512
    token_chars: int = 200
    healthy: bool = True
    paused: bool = False
    stats: Stats = field(default_factory=lambda: Stats(blocks_total=10))
    hold_at: int | None = None
    delay: float = 0.0
    fail_at: int | None = None
    failure: Exception | None = None
    retry_after: int | None = None
    restarts: int = 0
    lost_weights: str | None = None
    row_error: str | None = None
    cached: int = 0
    requests: list[dict] = field(default_factory=list)
    running: int = 0
    aborted: list[str] = field(default_factory=list)
    rendered: list[dict] = field(default_factory=list)
    closed: bool = False
    grammars: bool = False
    config: None = None
    template_variables: frozenset | None = None
    template_names: frozenset = frozenset({"default"})
    grammar_kinds: frozenset | None = None
    honoured: frozenset | None = None
    plugin_fields: dict = field(default_factory=dict)
    pooling: object = None

    @property
    def front(self):
        return self.pooling

    def __post_init__(self):
        self.tokenizer = ByteTokenizer()
        self.held = threading.Event()

    def render_chat(self, request):
        with spelling(request.names):
            return self._rendered(request.chat)

    def _rendered(self, chat):
        messages = [{**message, "content": joined(message["content"])} for message in chat.messages]
        self.rendered.append({"messages": messages, **given_to_template(chat)})
        text = "".join(f"[{message['role']}]{message['content']}" for message in messages)
        ids = [BOS, *text.encode()]
        if len(ids) >= self.max_model_len:
            raise RequestError("too long", param="messages", code="context_length_exceeded")
        return prompt_ids(ids)

    async def tokenize_chat(self, request):
        return self.render_chat(request)

    async def prepare(self, request):
        inputs = InputProcessor(self.tokenizer, vocab_size=300, max_model_len=self.max_model_len)
        with spelling(request.names):
            return inputs.prepare(request)

    async def tokenize(self, text, *, add_special_tokens=True):
        if len(text) > self.max_model_len * self.token_chars:
            raise RequestError("too long", param="prompt", code="context_length_exceeded")
        return await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens=add_special_tokens)

    async def token_offsets(self, asked, ids):
        return None

    async def submit(self, request, *, delta=False):
        assert delta
        with spelling(request.names):
            ids = self._checked(request)
        return IteratedFeed(self.answer(request, ids))

    def _checked(self, request):
        ids, grammar = request.rendered_ids, request.params.grammar
        if ids is None:
            given = split_prompt(request.prompt)
            ids = given.ids or prompt_ids(self.tokenizer.encode(given.text, add_special_tokens=given.special))
        if len(ids) >= self.max_model_len:
            raise RequestError("too long", param="prompt", code="context_length_exceeded")
        if grammar is not None and not self.grammars:
            raise RequestError(f"{grammar.param}: no backend", param=grammar.param, code="unsupported_parameter")
        return ids

    async def answer(self, request, ids) -> AsyncIterator[RequestOutput]:
        asked = {"id": request.engine_id, "params": request.params, "priority": request.priority}
        self.requests.append({**asked, "salt": request.cache_salt, "caller": request.caller, "ids": ids.tolist()})
        ended = False
        self.running += 1
        try:
            with spelling(request.names):
                async for output in self._outputs(request, ids):
                    yield output
            ended = True
        finally:
            self.running -= 1
            if not ended:
                self.aborted.append(request.engine_id)

    async def _outputs(self, request, ids):
        text, params = request.prompt if isinstance(request.prompt, str) else None, request.params
        replies = [self._reply(index).encode() for index in range(params.n)]
        scores = None
        if params.prompt_logprobs is not None:
            scores = [None, *(self._scores(token, params.prompt_logprobs) for token in ids[1:])]
        limit = params.max_tokens or self.max_model_len
        for step in range(max(len(reply) for reply in replies)):
            await self._wait(step)
            outputs = [
                self._output(index, reply, step, limit, params)
                for index, reply in enumerate(replies)
                if step < min(len(reply), limit)
            ]
            if outputs:
                yield RequestOutput(
                    request.engine_id,
                    text,
                    ids,
                    outputs,
                    prompt_logprobs=scores if step == 0 else None,
                    num_cached_tokens=self.cached,
                )

    async def _wait(self, step):
        if self.hold_at == step:
            while not self.held.is_set():
                await asyncio.sleep(0.005)
                self._maybe_fail()
        if self.delay:
            await asyncio.sleep(self.delay)
        if self.fail_at == step:
            self._maybe_fail()

    def _maybe_fail(self):
        if self.failure is not None:
            raise self.failure

    def _reply(self, index):
        return self.reply if isinstance(self.reply, str) else self.reply[index % len(self.reply)]

    def _output(self, index, reply, step, limit, params):
        token = reply[step]
        output = CompletionOutput(index, chr(token), [token])
        if params.logprobs is not None:
            output.logprobs = [self._scores(token, params.logprobs)]
        if step + 1 == min(len(reply), limit):
            output.finish_reason = "stop" if step + 1 == len(reply) else "length"
            if self.row_error is not None:
                output.finish_reason, output.error = "error", self.row_error
        return output

    def _scores(self, token, count):
        others = [other for other in range(60, 60 + count + 1) if other != token][:count]
        first = {token: Logprob(-0.5, 1, self.tokenizer.token(token))}
        return first | {other: Logprob(-1.0 - rank, rank + 2) for rank, other in enumerate(others)}

    async def call(self, method, *args):
        if not self.healthy and self.failure is not None:
            raise self.failure
        return [FAULT] if method == "plugin_faults" else self.stats

    async def close(self):
        self.closed = True


@dataclass
class Api:
    """Requests in memory; each call runs the application to the end."""

    app: object
    headers: dict = field(default_factory=dict)

    def request(self, method, path, **kwargs):
        async def go():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=self.headers) as client:
                return await client.request(method, path, **kwargs)

        return asyncio.run(go())

    def get(self, path, **kwargs):
        return self.request("GET", path, **kwargs)

    def post(self, path, body=None, **kwargs):
        if body is not None:
            kwargs["json"] = body
        return self.request("POST", path, **kwargs)

    def raw(self, path, content):
        return self.post(path, content=content, headers={"content-type": "application/json"})


def make_options(*, tool_parser=None, max_waiting=64, max_num_seqs=16, **given):
    own = {name: given.pop(name) for name in list(given) if name not in ServerOptions.model_fields}
    return Options(
        **in_sections(own),
        server=ServerOptions(**{"max_body_bytes": 200_000, "port": 0, **given}),
        scheduler=SchedulerOptions(max_waiting=max_waiting, max_num_seqs=max_num_seqs),
        select=SelectOptions(tool_parser=tool_parser),
    )


def in_sections(given):
    """Return options of plugins by their sections."""
    found = {}
    for name, value in given.items():
        (field,) = (one for one in option_fields() if one.name == name)
        found.setdefault(field.section, {})[name] = value
    return found


def make_app(llm, options, **given):
    """Return an application with the routes that are served wherever they are installed."""
    plugins = {
        OPENAI: OpenAIRoutes({}),
        RESPONSES: ResponsesRoutes({}),
        ANTHROPIC: AnthropicRoutes({}),
        POOLING: PoolingRoutes({}),
        RESUMABLE: ResumableRoutes({}),
        ADMIN: AdminRoutes({}),
    }
    if options.server.metrics_compat == FIGURES.name:
        plugins[FIGURES] = VllmFigures({})
    app = served_app(llm, options, plugins, **given)
    app.state.plugins = {spec.name: plugin for spec, plugin in plugins.items()}
    return app


@pytest.fixture(scope="session")
def app_of():
    return make_app


@pytest.fixture
def options():
    return make_options


@pytest.fixture(scope="session")
def fake():
    return FakeLLM


@pytest.fixture
def llm():
    return FakeLLM()


@pytest.fixture
def build():
    """Make an application and return a client of it."""

    def make(llm, *, parser=None, reports=(), defaults=None, **options):
        parser = parser and AnswerParser(parser)
        return Api(make_app(llm, make_options(**options), parser=parser, reports=reports, defaults=defaults))

    return make


@pytest.fixture
def api(llm, build):
    return build(llm)


@dataclass
class Live:
    """A server on a socket, in a thread with its own event loop."""

    url: str
    port: int
    llm: FakeLLM
    state: object
    server: HttpServer
    loop: asyncio.AbstractEventLoop
    plugins: dict


@contextlib.contextmanager
def listening(app, settings):
    """Serve an application; yield its listener, server and event loop."""
    listener, started = bind(settings.server), threading.Event()
    server = HttpServer(app, started.set, listener.tls and listener.tls.context, app.state.core.metrics.unheard)
    loops = []

    async def main():
        loops.append(asyncio.get_running_loop())
        await server.serve(sockets=[listener.socket])

    def run():
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(60)
    try:
        yield listener, server, loops[0]
    finally:
        app.state.core.llm.held.set()
        server.should_exit = server.force_exit = True
        thread.join(60)
        listener.close()


@contextlib.contextmanager
def serving(llm, **options) -> Iterator[Live]:
    settings = make_options(**options)
    app = make_app(llm, settings)
    with listening(app, settings) as (listener, server, loop):
        port = 0 if settings.server.uds else listener.socket.getsockname()[1]
        yield Live(listener.url, port, llm, app.state.core, server, loop, app.state.plugins)


@pytest.fixture(scope="session")
def over_http():
    """`with over_http(app) as url`: an application on a real socket."""

    @contextlib.contextmanager
    def serve(app):
        with listening(app, make_options()) as (listener, _, _):
            yield listener.url

    return serve


@pytest.fixture(scope="session")
def live():
    return serving


@pytest.fixture
def engine_error():
    return EngineError("CORE-E110", "the engine process ended with status -9 at 0x7f00deadbeef in /opt/x/y.py.")


@pytest.fixture
def until():
    """Wait for a condition."""
    import time

    def wait(condition, seconds=30.0):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "condition did not come true"
            time.sleep(0.005)

    return wait


@pytest.fixture(scope="session")
def strict():
    """`strict(kind, value)` reads a value as a type of a client library; a field that the type lacks is an error."""
    from functools import cache

    from pydantic import BaseModel, TypeAdapter

    adapter = cache(TypeAdapter)  # making one takes long
    untyped = {"Response": {"store"}}  # OpenAI's API sends it, its client has no type for it

    def check(value):
        if isinstance(value, BaseModel):
            name = type(value).__name__
            extra = set(value.model_extra or ()) - untyped.get(name, set())
            assert not extra, f"{name} has no {sorted(extra)}"
            for name in type(value).model_fields:
                check(getattr(value, name))
        elif isinstance(value, list):
            for item in value:
                check(item)
        return value

    return lambda kind, value: check(adapter(kind).validate_python(value))


class BracketParser:
    """`(thought)` is reasoning, `<name:json>` is a call, the rest is text. One character at a time."""

    contexts: ClassVar[list] = []

    def __init__(self, ctx):
        self.contexts.append(ctx)
        self.mode = "reasoning" if ctx.in_reasoning else "text"
        self.calls = 0
        self.name = ""

    def feed(self, text, token_ids=()):
        return [event for char in text for event in self.char(char)]

    def char(self, char):
        if self.mode == "text":
            if char in "(<":
                self.mode, self.name = ("reasoning", "") if char == "(" else ("name", "")
                return []
            return [Text(char)]
        if self.mode == "reasoning":
            if char == ")":
                self.mode = "text"
                return []
            return [Reasoning(char)]
        return self.call(char)

    def call(self, char):
        if self.mode == "name" and char == ":":
            self.mode = "arguments"
            self.calls += 1
            return [ToolStart(self.calls - 1, self.name)]
        if self.mode == "name":
            self.name += char
            return []
        if char == ">":
            self.mode = "text"
            return [ToolEnd(self.calls - 1)]
        return [ToolArguments(self.calls - 1, char)]

    def finish(self):
        return [Text(f"<{self.name}")] if self.mode == "name" else []


@pytest.fixture
def parser():
    BracketParser.contexts = []
    return BracketParser
