"""A server with one route plugin, in this process, over an engine that says the same to every prompt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from fastapi import FastAPI

from core.api.descriptors import RouteSpec
from core.api.errors import CoreError, EngineError, RequestError
from core.api.fronts import TaskFront
from core.api.operator import PauseMode
from core.api.pooling import PoolingFront
from core.api.routes import RoutePlugin
from core.api.sampling import SamplingField
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig, Options
from core.engine.messages import Stats
from core.frontend.inputs import Prepared
from core.frontend.output_stream import IteratedFeed, OutputFeed
from core.frontend.prompts import PromptIds, TokenizedPrompt, prompt_ids, split_prompt
from core.frontend.request import GenerationRequest
from core.frontend.results import CompletionOutput, RequestOutput
from core.frontend.spelling import spelling
from core.options.server import ServerOptions
from core.server.app import create_app
from core.server.plugin_routes.route import PluginRoute
from core.server.plugin_routes.table import RouteTable
from core_testing.conformance.outcome import Failed
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.tokenizers import tokenizer_of

REPLY = "kit"
_PAUSE = 0.002
_FIRST_PIECE = 0.3
"""Seconds in which a stream has sent something, generations being as quick as they are here."""

ADMIN_KEY = "kit-admin-key"
"""Of the API and of the operator. What is asked without saying by whom, the operator asks."""

STALL = 30.0
"""Seconds that a generation stops in the middle, so that nobody can wait for it."""


@dataclass
class KitLLM:
    """A `ServedLLM` that answers `REPLY`, letter by letter.

    Attributes:
        stall: Seconds before the last letter.
        running: Generations that were begun and have neither finished nor been closed.
        paused: As the server's own routes have left it.
        request_ids: None: the generations have no names here.
    """

    tokenizer: Tokenizer
    model_name: str = "kit"
    max_model_len: int = 512
    healthy: bool = True
    failure: EngineError | None = None
    retry_after: int | None = None
    restarts: int = 0
    lost_weights: str | None = None
    stats: Stats = field(default_factory=lambda: Stats(blocks_total=10))
    stall: float = 0.0
    running: int = 0
    paused: bool = False
    request_ids: list[str] = field(default_factory=list)
    config: EngineConfig | None = None
    template_variables: frozenset[str] | None = None
    template_names: frozenset[str] = frozenset({"default"})
    grammar_kinds: frozenset[str] | None = None
    honoured: frozenset[str] | None = None
    plugin_fields: Mapping[str, SamplingField] = field(default_factory=dict)
    pooling: PoolingFront | None = None
    front: TaskFront | None = None

    async def submit(self, request: GenerationRequest, *, delta: bool = False) -> OutputFeed:
        """Answer a request piece by piece; all of it so far each time, unless only what is new is asked for."""
        with spelling(request.names):
            return IteratedFeed(self._outputs(request, self._ids(request), delta=delta))

    async def _outputs(
        self, request: GenerationRequest, ids: PromptIds, *, delta: bool
    ) -> AsyncGenerator[RequestOutput, None]:
        limit = min(len(REPLY), request.params.max_tokens or len(REPLY))
        self.running += 1
        try:
            for count in range(1, limit + 1):
                await asyncio.sleep(self.stall if count == limit and self.stall else _PAUSE)
                reason = "stop" if count == limit else None
                start = count - 1 if delta else 0
                piece = CompletionOutput(0, REPLY[start:count], list(range(start, count)), finish_reason=reason)
                yield RequestOutput("kit", None, ids, [piece], reason is not None)
        finally:
            self.running -= 1

    def render_chat(self, request: GenerationRequest) -> PromptIds:
        """Return some token ids."""
        return prompt_ids((3, 4, 5))

    async def tokenize_chat(self, request: GenerationRequest) -> PromptIds:
        """Return the same."""
        return self.render_chat(request)

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the text's token ids."""
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    async def token_offsets(self, *asked: Any) -> None:
        """Nobody knows."""

    async def pool(self, *work: Any, **treatment: Any) -> Any:
        """Refuse: it generates."""
        raise RequestError("this model generates text")

    pool_data = pool

    async def prepare(self, request: GenerationRequest) -> Prepared:
        """Return the request with its token ids."""
        with spelling(request.names):
            prompt = TokenizedPrompt(None, self._ids(request))
        return Prepared(request, prompt, request.params, [], [], request.priority)

    async def abort(self, request_id: str) -> None:
        """Nobody is known by an id."""

    async def pause_generation(self, mode: PauseMode = "abort", *, clear_cache: bool = True) -> None:
        """Remember it."""
        self.paused = True

    async def resume_generation(self) -> None:
        """Forget it."""
        self.paused = False

    async def dismiss_held(self) -> None:
        """Nothing is held back."""

    async def call(self, method: str, *args: Any) -> Any:
        """Answer `stats` with figures, anything else with nothing, of the form that the method's answers have."""
        answers: dict[str, Any] = {"stats": {"running": self.running}, "profile": {}, "recent_log": []}
        return answers.get(method)

    async def close(self) -> None:
        """Nothing is open."""

    def _ids(self, request: GenerationRequest) -> PromptIds:
        if request.rendered_ids is not None:
            return request.rendered_ids
        given = split_prompt(request.prompt)
        ids = prompt_ids(given.ids if given.ids is not None else self.tokenizer.encode(given.text or ""))
        if len(ids) >= self.max_model_len:
            raise RequestError("the prompt is too long", param="prompt", code="context_length_exceeded")
        return ids


class RouteBench:
    """The plugin behind core's own application, bound to an engine.

    Attributes:
        routes: What it declared, in order.
    """

    def __init__(self, subject: Subject, options: Mapping[str, Any], *, stall: float = 0.0) -> None:
        self.plugin: RoutePlugin = subject.impl()(dict(options))
        self.table = declared(subject, self.plugin)
        self.routes: Sequence[PluginRoute] = self.table.routes
        self.llm = KitLLM(tokenizer_of(subject), stall=stall)
        keys = ServerOptions(admin_api_key=ADMIN_KEY)
        self.app: FastAPI = create_app(
            self.llm,
            Options(server=keys),
            plugin_routes=self.routes,
            layers=self.table.layers,
            figures=self.table.figures,
        )
        self.table.plugins.append((subject.title, self.plugin))
        self.table.bind(self.app.state.core)

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request and return the whole answer."""
        return asyncio.run(self._ask(method, path, body, query))

    def leave(self, method: str, path: str, body: object = None) -> int:
        """Send a request and go away after the first of several pieces; return the generations that run on then.

        0 as well when the answer came in one piece.
        """
        return asyncio.run(self._leave(method, path, body))

    async def _ask(self, method: str, path: str, body: object, query: Mapping[str, str] | None) -> Answer:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        content, kind = _encoded(body)
        headers = {"x-api-key": ADMIN_KEY, **({} if content is None else {"content-type": kind})}
        async with httpx.AsyncClient(transport=transport, base_url="http://kit") as client:
            answer = await client.request(method, path, content=content, headers=headers, params=dict(query or {}))
        await self._settle(1.0)
        return Answer(answer.status_code, answer.content, self.llm.running)

    async def _leave(self, method: str, path: str, body: object) -> int:
        content, kind = _encoded(body)
        begun, sent = asyncio.Event(), [{"type": "http.request", "body": content or b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if sent:
                return sent.pop()
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body" and message.get("more_body"):
                begun.set()

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"content-type", kind.encode()), (b"host", b"kit"), (b"x-api-key", ADMIN_KEY.encode())],
            "client": ("127.0.0.1", 1),
            "server": ("kit", 80),
        }
        task = asyncio.ensure_future(self.app(scope, receive, send))
        first = asyncio.ensure_future(begun.wait())
        await asyncio.wait({task, first}, timeout=_FIRST_PIECE, return_when=asyncio.FIRST_COMPLETED)
        left = 0
        if begun.is_set():
            await asyncio.wait({task}, timeout=1.0)
            await self._settle(1.0)
            left = self.llm.running
        first.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return left

    async def _settle(self, seconds: float) -> None:
        """Wait until no generation runs, or for so long."""
        steps = int(seconds / 0.01)
        while self.llm.running and steps:
            steps -= 1
            await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True)
class SentForm:
    """A body that is a form: texts, and files as bytes, by name."""

    parts: Mapping[str, str | bytes]


def _encoded(body: object) -> tuple[bytes | None, str]:
    """Return a body's bytes, None where there is none, and its media type."""
    if not isinstance(body, SentForm):
        return None if body is None else json.dumps(body).encode(), "application/json"
    parts = [(name, (None if isinstance(value, str) else name, value)) for name, value in body.parts.items()]
    form = httpx.Request("POST", "http://kit", files=parts)
    return form.read(), form.headers["content-type"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and how many generations were still running a moment after it."""

    status: int
    body: bytes
    running: int


def declared(subject: Subject, plugin: RoutePlugin) -> RouteTable:
    """Return what a plugin declares to core's own registry. Raises `Failed` when core refuses it."""
    table = RouteTable()
    try:
        plugin.declare(table.registry(subject.entry.name, subject.title, subject.spec(RouteSpec)))
    except CoreError as error:
        raise Failed(error.message) from error
    return table
