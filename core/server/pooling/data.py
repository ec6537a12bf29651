"""`POST /pooling` with `data`: a request that the model's I/O processor reads and answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel

from core.api.errors import PluginError
from core.api.io_processors import IORequest
from core.frontend.pooling.data import io_request
from core.server.errors import ApiError
from core.server.generation import new_id
from core.server.pooling.protocol import PoolingBody
from core.server.pooling.run import Encoded, count_pooled, required_pooler
from core.server.state import ServerState

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


@dataclass(slots=True)
class DataCall:
    """One request, from its data to its answer."""

    state: ServerState
    body: PoolingBody
    request: IORequest

    async def run(self) -> Encoded:
        """Do it. Raises `ApiError`, `RequestError`, `CoreError`."""
        state, body, began = self.state, self.body, time.perf_counter()
        state.admit(1)
        state.pending += 1
        try:
            done = await state.llm.pool_data(self.request, **body.treatment())
        finally:
            state.pending -= 1
        count_pooled(state, done.outputs, done.prompt_tokens, time.perf_counter() - began)
        return await asyncio.to_thread(self._encoded, done.answer)

    def _encoded(self, answer: Any) -> Encoded:
        head = {"request_id": self.request.request_id, "created_at": int(time.time())}
        return Encoded(written({**head, "data": answer}))


def data_call(state: ServerState, body: PoolingBody) -> DataCall:
    """Return the call of a body that has `data`. Raises `ApiError` 400, `RequestError`."""
    required_pooler(state)
    for name in ("input", "messages"):
        if getattr(body, name) is not None:
            raise ApiError(400, f"Give either data or {name}.", param="data")
    return DataCall(state, body, io_request(body.data, body.params(), body.task, new_id("pool")))


def written(answer: Any) -> bytes:
    """Return an answer as JSON. Raises `PluginError` CORE-P108 if it holds what has no form there."""
    try:
        return orjson.dumps(answer, default=_plain, option=_OPTIONS)
    except orjson.JSONEncodeError as error:
        raise PluginError("CORE-P108", f"the I/O processor's answer cannot be written as JSON: {error}.") from error


def _plain(value: Any) -> Any:
    """Return what orjson does not know itself as what it knows."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if hasattr(value, "tolist"):  # arrays that are not contiguous, and numpy's numbers
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no form in JSON")
