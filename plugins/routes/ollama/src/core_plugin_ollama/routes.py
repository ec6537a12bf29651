"""The endpoints."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from time import perf_counter
from typing import Any, TypeVar

import orjson

from core.api import ChatRequest, Dialect, Reply, RequestError, TextRequest, VectorRequest
from core.api.bodies import invalid
from core.api.routes import EngineClient, RouteRegistry, RouteRequest, RouteResponse
from core_plugin_ollama.bodies import (
    ChatBody,
    EmbedBody,
    EmbeddingsBody,
    GenerateBody,
    Generated,
    Named,
    Streamed,
    read,
)
from core_plugin_ollama.model import described, is_served, listed, running
from core_plugin_ollama.records import Record, RecordJob, Records, Shape, as_message, as_response, line, nanoseconds
from core_plugin_ollama.translate import chat_request, generate_request

NDJSON = "application/x-ndjson"
N = TypeVar("N", bound=Named)

_ABSENT = "this server serves one model, which is chosen when it is started; models cannot be changed from here"


class OllamaRoutes:
    """Ollama's API over the served model."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._version = str(options["version"]) if "version" in options else _default_version()
        self._bound: EngineClient | None = None

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes."""
        registry.dialect(Dialect(_said, failed=lambda error: line(_said(error))))
        registry.asset("/", b"Ollama is running", "text/plain; charset=utf-8", optional=True)
        for path, endpoint in (
            ("chat", self.chat),
            ("generate", self.generate),
            ("embed", self.embed),
            ("embeddings", self.embeddings),
            ("show", self.show),
            ("pull", self.pull),
        ):
            registry.add("POST", f"/api/{path}", endpoint, summary=f"Ollama's /api/{path}")
        for path, reading in (("tags", self.tags), ("ps", self.ps), ("version", self.version)):
            for method in ("GET", "HEAD"):
                registry.add(method, f"/api/{path}", reading, summary=f"Ollama's /api/{path}")
        for method, path in (("POST", "push"), ("POST", "create"), ("POST", "copy"), ("DELETE", "delete")):
            registry.add(method, f"/api/{path}", self.absent, summary="Refused")

    def bind(self, client: EngineClient) -> None:
        """Keep the running engine."""
        self._bound = client

    # -- generation ------------------------------------------------------------------------------------------------

    async def chat(self, request: RouteRequest) -> RouteResponse | Reply:
        """`POST /api/chat`."""
        body = self._about(ChatBody, await request.json())
        if not body.messages:
            return self._loaded(body, as_message)
        self._must_generate()
        return await self._answered(body, chat_request(body, self._client), as_message)

    async def generate(self, request: RouteRequest) -> RouteResponse | Reply:
        """`POST /api/generate`."""
        body = self._about(GenerateBody, await request.json())
        if not body.prompt:
            return self._loaded(body, as_response)
        self._must_generate()
        return await self._answered(body, generate_request(body, self._client), as_response)

    async def _answered(self, body: Generated, asked: ChatRequest | TextRequest, shape: Shape) -> Reply:
        answer = await self._client.open(asked, prefix="ollama")
        return Reply(RecordJob(answer, Records(body.asked, shape)), body.stream is not False, media_type=NDJSON)

    def _loaded(self, body: Generated, shape: Shape) -> RouteResponse:
        """Answer a request without content, which asks that the model be loaded, or with `keep_alive` 0 unloaded."""
        reason = "unload" if body.keep_alive in (0, "0", "0s", "0m") else "load"
        record = json.dumps(Records(body.asked, shape).loaded(reason)).encode()
        return RouteResponse(record, media_type="application/json" if body.stream is False else NDJSON)

    def _must_generate(self) -> None:
        if "complete" not in self._client.abilities:
            raise RequestError(f'"{self._client.model_name}" does not support chat or generate: it gives embeddings')

    # -- embeddings ------------------------------------------------------------------------------------------------

    async def embed(self, request: RouteRequest) -> RouteResponse:
        """`POST /api/embed`."""
        began = perf_counter()
        body = self._about(EmbedBody, await request.json())
        vectors, tokens = await self._embedded(body.input or [], body)
        figures = {
            "total_duration": nanoseconds(perf_counter() - began),
            "load_duration": 0,
            "prompt_eval_count": tokens,
        }
        return _json({"model": body.asked, "embeddings": vectors, **figures})

    async def embeddings(self, request: RouteRequest) -> RouteResponse:
        """`POST /api/embeddings`, the older form."""
        body = self._about(EmbeddingsBody, await request.json())
        vectors, _ = await self._embedded(body.prompt or [], EmbedBody())
        return _json({"embedding": vectors[0] if vectors else []})

    async def _embedded(self, texts: str | list[str], body: EmbedBody) -> tuple[list[list[float]], int]:
        if "embed" not in self._client.abilities:
            raise RequestError(f'"{self._client.model_name}" does not support embeddings')
        if not texts:
            return [], 0
        prompts = [texts] if isinstance(texts, str) else texts
        if not all(prompts):
            raise invalid("input", "must not hold an empty text")
        params = {"dimensions": body.dimensions, "truncate_prompt_tokens": None if body.truncate is False else -1}
        asked = VectorRequest(prompts=prompts, task="embed", params=params, names={"prompts": "input"})
        found = await self._client.pool(asked, prefix="ollama")
        # As few digits as float32 has: `tolist` would write those of a double.
        vectors = orjson.dumps([*found.results], option=orjson.OPT_SERIALIZE_NUMPY)
        return orjson.loads(vectors), found.usage.prompt

    # -- models ----------------------------------------------------------------------------------------------------

    async def tags(self, request: RouteRequest) -> RouteResponse:
        """`GET /api/tags`: the models there are."""
        return _json({"models": [listed(self._client)]})

    async def ps(self, request: RouteRequest) -> RouteResponse:
        """`GET /api/ps`: the models that are loaded."""
        return _json({"models": [running(self._client)]})

    async def version(self, request: RouteRequest) -> RouteResponse:
        """`GET /api/version`."""
        return _json({"version": self._version})

    async def show(self, request: RouteRequest) -> RouteResponse:
        """`POST /api/show`."""
        self._about(Named, await request.json())
        return _json(described(self._client))

    async def pull(self, request: RouteRequest) -> RouteResponse:
        """`POST /api/pull`: nothing is left to do for the served model; another one cannot be had."""
        body = read(Streamed, await request.json())
        if not is_served(self._client, body.asked):
            raise RequestError(_ABSENT, param="model", status=501)
        if body.stream is False:
            return _json({"status": "success"})
        return RouteResponse(_pulled(), media_type=NDJSON)

    async def absent(self, request: RouteRequest) -> RouteResponse:
        """Refuse what changes the models of a server."""
        raise RequestError(_ABSENT, status=501)

    # --------------------------------------------------------------------------------------------------------------

    @property
    def _client(self) -> EngineClient:
        if self._bound is None:
            raise RequestError("the engine is not ready yet", status=503)
        return self._bound

    def _about(self, kind: type[N], fields: Mapping[str, Any]) -> N:
        """Read a request about the served model. Raises `RequestError`."""
        body = read(kind, fields)
        if not is_served(self._client, body.asked):
            raise RequestError(f"model '{body.asked[:200]}' not found", param="model", status=404)
        return body if body.model else body.model_copy(update={"model": body.asked or self._client.model_name})


async def _pulled() -> AsyncIterator[bytes]:
    for status in ("pulling manifest", "success"):
        yield json.dumps({"status": status}).encode() + b"\n"


def _said(error: RequestError) -> Record:
    return {"error": error.message}


def _json(value: Record) -> RouteResponse:
    return RouteResponse(json.dumps(value).encode())


def _default_version() -> str:
    from core_plugin_ollama.options import OllamaOptions

    return OllamaOptions().version
