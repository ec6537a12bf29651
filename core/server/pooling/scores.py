"""`POST /score` and `POST /rerank`, under the paths that clients know."""

from __future__ import annotations

import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from core.api.bodies import invalid
from core.frontend.pooling.results import ScoringRequestOutput
from core.server.errors import ApiError
from core.server.generation import new_id
from core.server.pooling.protocol import RerankBody, ScoreBody
from core.server.pooling.run import Encoded, PoolingCall, PoolingResponse, as_json, required_pooler, usage
from core.server.state import ServerState

_SIDES = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))


async def score(state: ServerState, request: Request) -> Response:
    """Return a score per pair; a single first text goes with every second one."""
    body, fields = await state.read(request, ScoreBody)
    pooler = required_pooler(state, "score")
    first, second, (one, two) = _sides(body)

    def render(results: list[ScoringRequestOutput], tokens: int) -> Encoded:
        data = [
            {"index": index, "object": "score", "score": result.outputs.score} for index, result in enumerate(results)
        ]
        head = {"id": new_id("score"), "object": "list", "created": int(time.time())}
        return as_json({**head, "model": state.llm.model_name, "data": data, "usage": usage(tokens)})

    prepare = partial(pooler.score, first, second, body.params(), query_param=one, param=two)
    return PoolingResponse(PoolingCall(state, body, prepare, [*first, *second], render), fields)


async def rerank(state: ServerState, request: Request) -> Response:
    """Return the documents that suit a query, the best first."""
    body, fields = await state.read(request, RerankBody)
    pooler = required_pooler(state, "score")
    documents = [one if isinstance(one, str) else one.text for one in body.documents]

    def render(results: list[ScoringRequestOutput], tokens: int) -> Encoded:
        scores = [result.outputs.score for result in results]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n or None]
        kept = body.return_documents is not False
        found = [
            {"index": index, "relevance_score": scores[index]}
            | ({"document": {"text": documents[index]}} if kept else {})
            for index in order
        ]
        head = {"id": new_id("rerank"), "model": state.llm.model_name}
        return as_json({**head, "usage": usage(tokens), "results": found})

    prepare = partial(pooler.score, [body.query], documents, body.params(), query_param="query", param="documents")
    return PoolingResponse(PoolingCall(state, body, prepare, [body.query, *documents], render), fields)


def _sides(body: ScoreBody) -> tuple[list[str], list[str], tuple[str, str]]:
    """Return both sides as lists, and their names. Raises `ApiError` 400."""
    given = [(one, two) for one, two in _SIDES if getattr(body, one) is not None or getattr(body, two) is not None]
    if len(given) != 1:
        names = ", or ".join(f"{one} and {two}" for one, two in _SIDES)
        raise ApiError(400, f"Give the texts as one of: {names}.", param=given[1][0] if given else "text_1")
    one, two = given[0]
    sides = [getattr(body, name) for name in (one, two)]
    for name, side in zip((one, two), sides, strict=True):
        if side is None:
            raise invalid(name, "is missing")
    first, second = ([side] if isinstance(side, str) else list(side) for side in sides)
    return first, second, (one, two)
