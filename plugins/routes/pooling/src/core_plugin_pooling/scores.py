"""`POST /score` and `POST /rerank`, under the paths that clients know."""

from __future__ import annotations

import asyncio
import time

from core.api import EngineClient, Pooled, RequestError, RouteRequest, RouteResponse, ScoreRequest
from core.api.bodies import invalid
from core_plugin_pooling.answers import as_json, spent
from core_plugin_pooling.protocol import RerankBody, ScoreBody

_SIDES = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))


async def score(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return a score per pair; a single first text goes with every second one."""
    body, fields = await request.read(ScoreBody)
    client.pooler("score")
    first, second, (one, two) = _sides(body)
    params, headers = body.params(), client.unread(fields, ScoreBody.model_fields)
    names = {"queries": one, "documents": two}
    asked = ScoreRequest(queries=first, documents=second, params=params, names=names, **body.treatment())
    done = await client.pool(asked, prefix="score")

    def answer() -> bytes:
        data = [{"index": index, "object": "score", "score": found} for index, found in enumerate(done.results)]
        head = {"id": done.id, "object": "list", "created": int(time.time()), "model": client.model_name}
        return as_json({**head, "data": data, "usage": spent(done.usage)})

    return RouteResponse(await asyncio.to_thread(answer), headers=headers)


async def rerank(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return the documents that suit a query, the best first."""
    body, fields = await request.read(RerankBody)
    client.pooler("score")
    documents = [one if isinstance(one, str) else one.text for one in body.documents]
    params, headers = body.params(), client.unread(fields, RerankBody.model_fields)
    names = {"queries": "query"}
    asked = ScoreRequest(queries=[body.query], documents=documents, params=params, names=names, **body.treatment())
    done = await client.pool(asked, prefix="rerank")
    answer = await asyncio.to_thread(_ranked, client.model_name, body, documents, done)
    return RouteResponse(answer, headers=headers)


def _ranked(model: str, body: RerankBody, documents: list[str], done: Pooled[float]) -> bytes:
    scores = done.results
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n or None]
    kept = body.return_documents is not False
    found = [
        {"index": index, "relevance_score": scores[index]} | ({"document": {"text": documents[index]}} if kept else {})
        for index in order
    ]
    return as_json({"id": done.id, "model": model, "usage": spent(done.usage), "results": found})


def _sides(body: ScoreBody) -> tuple[list[str], list[str], tuple[str, str]]:
    """Return both sides as lists, and their names. Raises `RequestError`."""
    given = [(one, two) for one, two in _SIDES if getattr(body, one) is not None or getattr(body, two) is not None]
    if len(given) != 1:
        names = ", or ".join(f"{one} and {two}" for one, two in _SIDES)
        raise RequestError(f"Give the texts as one of: {names}.", param=given[1][0] if given else "text_1")
    one, two = given[0]
    sides = [getattr(body, name) for name in (one, two)]
    for name, side in zip((one, two), sides, strict=True):
        if side is None:
            raise invalid(name, "is missing")
    first, second = ([side] if isinstance(side, str) else list(side) for side in sides)
    return first, second, (one, two)
