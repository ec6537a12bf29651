"""Routes of plugins: declared before the engine starts, bound to it once it runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from core.api.errors import PluginError
from core.api.routes import Endpoint, GeneratedText, RoutePlugin, RouteResponse
from core.api.sampling import SamplingView
from core.api.sinks import EngineStats
from core.api.tokenizer import Tokenizer
from core.engine.sampling import SamplingParams
from core.frontend.sinks import engine_stats
from core.plugins.boot import ActivePlugins
from core.server.body import parse_object, read_bytes
from core.server.state import ServerState

GROUP = "core.routes"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PARAMETER = re.compile(r"\{[^{}/]+\}")


@dataclass(frozen=True, slots=True)
class PluggedRoute:
    """One declared route and whose it is."""

    owner: str
    method: str
    path: str
    endpoint: Endpoint
    summary: str = ""


@dataclass(slots=True)
class RouteTable:
    """The routes of all plugins."""

    routes: list[PluggedRoute] = field(default_factory=list)
    plugins: list[tuple[str, RoutePlugin]] = field(default_factory=list)

    @classmethod
    def declare(cls, active: ActivePlugins) -> RouteTable:
        """Let the plan's route plugins declare their routes.

        Raises:
            PluginError: CORE-P130, a route cannot be; CORE-P108, a plugin raised something else.
        """
        table = cls()
        for planned, _, make in active.impls(GROUP):
            owner = f"'{planned.name}' ({planned.dist} {planned.version})"
            plugin = _guarded(owner, "its constructor", make, planned.options)
            _guarded(owner, "declare()", plugin.declare, PluginRoutes(table, planned.name, owner))
            table.plugins.append((owner, plugin))
        return table

    def bind(self, state: ServerState) -> None:
        """Give every plugin the running engine. Raises `PluginError` CORE-P108."""
        for owner, plugin in self.plugins:
            _guarded(owner, "bind()", plugin.bind, ServedClient(state))


@dataclass(frozen=True, slots=True)
class PluginRoutes:
    """The `RouteRegistry` of one plugin."""

    table: RouteTable
    name: str
    owner: str

    def add(self, method: str, path: str, endpoint: Endpoint, *, summary: str = "") -> None:
        """Declare a route. Raises `PluginError` CORE-P130."""
        prefix = f"/x/{self.name}"
        if method not in METHODS:
            raise self._refusal(method, path, f"methods are {', '.join(METHODS)}")
        if path != prefix and not path.startswith(f"{prefix}/"):
            raise self._refusal(method, path, f"its routes lie under {prefix}/")
        shape = _PARAMETER.sub("{}", path)
        for known in self.table.routes:
            if (known.method, _PARAMETER.sub("{}", known.path)) == (method, shape):
                raise self._refusal(method, path, f"route plugin {known.owner} has declared it")
        self.table.routes.append(PluggedRoute(self.owner, method, path, endpoint, summary))

    def _refusal(self, method: str, path: str, why: str) -> PluginError:
        return PluginError("CORE-P130", f"route plugin {self.owner} cannot have route {method} {path}: {why}.")


class PluggedRequest:
    """`RouteRequest` over the server's own request."""

    def __init__(self, request: Request, limit: int) -> None:
        self._request, self._limit = request, limit
        self.method, self.path = request.method, request.url.path
        self.path_params: Mapping[str, str] = {name: str(value) for name, value in request.path_params.items()}
        self.query: Mapping[str, str] = dict(request.query_params)
        self.headers: Mapping[str, str] = dict(request.headers)

    async def json(self) -> dict[str, Any]:
        """Return the body. Raises what the server answers with a 4xx."""
        return parse_object(await read_bytes(self._request, self._limit))


class PluggedEndpoint:
    """Answers one route."""

    def __init__(self, route: PluggedRoute, state: ServerState) -> None:
        self._route, self._limit = route, state.options.server.max_body_bytes

    async def __call__(self, request: Request) -> Response:
        """Return the plugin's answer."""
        answer = await self._route.endpoint(PluggedRequest(request, self._limit))
        if not isinstance(answer, RouteResponse):
            name = type(answer).__name__
            text = f"route plugin {self._route.owner}: {self._route.path} gave a {name}, not a RouteResponse."
            raise PluginError("CORE-P108", text)
        if isinstance(answer.body, bytes):
            return Response(answer.body, answer.status, dict(answer.headers), answer.media_type)
        return StreamingResponse(answer.body, answer.status, dict(answer.headers), answer.media_type)


class ServedClient:
    """`EngineClient` over what the server serves; its generations count like any other."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._llm = state.llm

    @property
    def model_name(self) -> str:
        """Name the model is served under."""
        return self._llm.model_name

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, in tokens."""
        return self._llm.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._llm.tokenizer

    @property
    def stats(self) -> EngineStats:
        """The engine's latest figures."""
        return engine_stats(self._llm.stats)

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._llm.healthy

    async def generate(
        self, prompt: str | Sequence[int], params: SamplingView | None = None
    ) -> AsyncIterator[GeneratedText]:
        """Yield what a generation has given so far. Raises what the server answers with a 4xx or 503."""
        chosen = params if isinstance(params, SamplingParams) else SamplingParams(**self._state.defaults)
        asked: Any = prompt if isinstance(prompt, str) else {"prompt_token_ids": list(prompt)}
        self._state.admit(chosen.n)
        task = asyncio.current_task()
        if task is not None:
            self._state.lifecycle.work.add(task)  # a drain waits for it
        try:
            async with aclosing(self._llm.generate(asked, chosen)) as outputs:  # type: ignore[type-var]
                async for output in outputs:
                    first = output.outputs[0]
                    yield GeneratedText(first.text, tuple(first.token_ids), first.finish_reason)
        finally:
            if task is not None:
                self._state.lifecycle.work.discard(task)

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data."""
        return await self._llm.call(method, *args)


def _guarded(owner: str, what: str, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except PluginError:
        raise
    except Exception as error:
        text = f"route plugin {owner}: {what} raised {type(error).__name__}: {error}."
        raise PluginError("CORE-P108", text) from error
