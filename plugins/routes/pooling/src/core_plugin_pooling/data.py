"""`POST /pooling` with `data`: a request that the model's I/O processor reads and answers."""

from __future__ import annotations

import time

import orjson

from core.api import DataRequest, EngineClient, RequestError, RouteResponse
from core_plugin_pooling.protocol import PoolingBody


async def data_answer(client: EngineClient, body: PoolingBody, headers: dict[str, str]) -> RouteResponse:
    """Return the answer to a body that has `data`. Raises `RequestError`."""
    done = await client.pool(
        DataRequest(data=body.data, task=body.task, params=body.params(), **body.treatment()), prefix="pool"
    )
    head = {"request_id": done.id, "created_at": int(time.time())}
    return RouteResponse(orjson.dumps({**head, "data": orjson.Fragment(done.results[0])}), headers=headers)


def check_alone(body: PoolingBody) -> None:
    """Refuse `data` beside what else would be pooled. Raises `RequestError`."""
    for name in ("input", "messages"):
        if getattr(body, name) is not None:
            raise RequestError(f"Give either data or {name}.", param="data")
