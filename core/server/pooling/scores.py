"""`POST /score` and `POST /rerank`, under the paths that clients know."""

from __future__ import annotations

import time
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from core.frontend.pooling_results import ScoringRequestOutput
from core.server.body import read_model
from core.server.errors import ApiError
from core.server.openai.generation import new_id
from core.server.pooling.inputs import size_of
from core.server.pooling.protocol import RerankBody, ScoreBody
from core.server.pooling.run import Encoded, PoolingCall, PoolingResponse, as_json, required_pooler, usage
from core.server.state import ServerState

_SIDES = (("text_1", "text_2"), ("queries", "documents"), ("data_1", "data_2"))


class ScoreRoutes:
    """Says how well texts belong together."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def score(self, request: Request) -> Response:
        """Return a score per pair; a single first text goes with every second one."""
        state = self._state
        body, fields = await read_model(request, ScoreBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        pooler = required_pooler(state)
        pooler.check("score")
        first, second, (one, two) = _sides(body)

        def render(results: list[ScoringRequestOutput], tokens: int) -> Encoded:
            data = [
                {"index": index, "object": "score", "score": result.outputs.score}
                for index, result in enumerate(results)
            ]
            head = {"id": new_id("score"), "object": "list", "created": int(time.time())}
            return as_json({**head, "model": state.llm.model_name, "data": data, "usage": usage(tokens)})

        call = PoolingCall(
            state,
            partial(pooler.score, first, second, body.params(), query_param=one, param=two),
            size_of([*first, *second]),
            render,
            body.priority or 0,
            body.cache_salt,
        )
        return PoolingResponse(call, state.unread_fields(fields, ScoreBody.model_fields))

    async def rerank(self, request: Request) -> Response:
        """Return the documents that suit a query, the best first."""
        state = self._state
        body, fields = await read_model(request, RerankBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        pooler = required_pooler(state)
        pooler.check("score")
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
            return as_json(
                {"id": new_id("rerank"), "model": state.llm.model_name, "usage": usage(tokens), "results": found}
            )

        call = PoolingCall(
            state,
            partial(pooler.score, [body.query], documents, body.params(), query_param="query", param="documents"),
            size_of([body.query, *documents]),
            render,
            body.priority or 0,
            body.cache_salt,
        )
        return PoolingResponse(call, state.unread_fields(fields, RerankBody.model_fields))


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
            raise ApiError(400, f"{name} is missing.", param=name)
    first, second = ([side] if isinstance(side, str) else list(side) for side in sides)
    return first, second, (one, two)
