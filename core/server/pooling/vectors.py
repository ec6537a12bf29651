"""`POST /v1/embeddings`, `POST /pooling` and `POST /classify`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from core.api.errors import RequestError
from core.frontend.pooling_results import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
)
from core.server.body import read_model
from core.server.openai.generation import new_id
from core.server.pooling.data import data_call
from core.server.pooling.encoding import to_base64, to_bytes
from core.server.pooling.inputs import prompts_of, size_of
from core.server.pooling.protocol import ClassifyBody, EmbeddingBody, PoolingBody, VectorBody
from core.server.pooling.run import Encoded, PoolingCall, PoolingResponse, as_json, required_pooler, usage
from core.server.state import ServerState

METADATA_LIMIT = 48 * 1024
"""Most bytes of the header that says where vectors are; many clients read no longer headers than 64 KiB."""

BYTES = "application/octet-stream"


class VectorRoutes:
    """Answers with vectors, or with what a head makes of them."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def embeddings(self, request: Request) -> Response:
        """Return embeddings in OpenAI's form."""
        state = self._state
        body, fields = await read_model(request, EmbeddingBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        pooler = required_pooler(state)
        pooler.check("embed")
        prompts, params = await prompts_of(state, body), body.params()

        def render(results: list[EmbeddingRequestOutput], tokens: int) -> Encoded:
            return self._encoded(body, [result.outputs.array for result in results], tokens, "embedding")

        call = PoolingCall(
            state,
            partial(pooler.embed, prompts, params, param="input"),
            size_of(prompts),
            render,
            body.priority or 0,
            body.cache_salt,
        )
        return PoolingResponse(call, state.unread_fields(fields, EmbeddingBody.model_fields))

    async def pooling(self, request: Request) -> Response:
        """Return what the model gives for a task, or what its I/O processor makes of `data`."""
        state = self._state
        body, fields = await read_model(request, PoolingBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        if body.data is not None:
            return PoolingResponse(data_call(state, body), state.unread_fields(fields, PoolingBody.model_fields))
        pooler = required_pooler(state)
        task = body.task or pooler.tasks[0]
        pooler.check(task)
        prompts, params = await prompts_of(state, body), body.params()

        def render(results: list[PoolingRequestOutput[PoolingOutput]], tokens: int) -> Encoded:
            return self._encoded(body, [result.outputs.data for result in results], tokens, "pooling")

        call = PoolingCall(
            state,
            partial(pooler.encode, prompts, params, task, param="input"),
            size_of(prompts),
            render,
            body.priority or 0,
            body.cache_salt,
            pooler.size if task.startswith("token_") else 0,
        )
        return PoolingResponse(call, state.unread_fields(fields, PoolingBody.model_fields))

    async def classify(self, request: Request) -> Response:
        """Return the most likely label, and the probability of each."""
        state = self._state
        body, fields = await read_model(request, ClassifyBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        pooler = required_pooler(state)
        pooler.check("classify")
        prompts, params = await prompts_of(state, body), body.params()

        def render(results: list[ClassificationRequestOutput], tokens: int) -> Encoded:
            data = [_class(index, result.outputs) for index, result in enumerate(results)]
            return as_json({**self._head("classify"), "data": data, "usage": usage(tokens)})

        call = PoolingCall(
            state,
            partial(pooler.classify, prompts, params, param="input"),
            size_of(prompts),
            render,
            body.priority or 0,
            body.cache_salt,
        )
        return PoolingResponse(call, state.unread_fields(fields, ClassifyBody.model_fields))

    # ---------------------------------------------------------------------------------------------------------------

    def _head(self, prefix: str) -> dict[str, Any]:
        return {
            "id": new_id(prefix),
            "object": "list",
            "created": int(time.time()),
            "model": self._state.llm.model_name,
        }

    def _encoded(self, body: VectorBody, vectors: Sequence[np.ndarray], tokens: int, kind: str) -> Encoded:
        """Write vectors as the request asked; `kind` is the object's name, and the field's where it has one."""
        form, dtype, endianness = body.encoding_format or "float", body.embed_dtype or "float32", body.endianness
        head, spent = self._head("embd" if kind == "embedding" else "pool"), usage(tokens)
        if form in ("bytes", "bytes_only"):
            data, items = to_bytes(vectors, dtype, endianness or "native")
            metadata = {**head, "data": items, "usage": spent}
            return Encoded(data, BYTES, {"metadata": _metadata(metadata)} if form == "bytes" else {})
        key = "embedding" if kind == "embedding" else "data"
        entries = []
        for index, vector in enumerate(vectors):
            written = vector if form == "float" else to_base64(vector, dtype, endianness or "native")
            entries.append({"index": index, "object": kind, key: written})
        return as_json({**head, "data": entries, "usage": spent})


def _class(index: int, output: ClassificationOutput) -> dict[str, Any]:
    return {"index": index, "label": output.label, "probs": output.probs, "num_classes": output.num_classes}


def _metadata(value: dict[str, Any]) -> str:
    text = orjson.dumps(value).decode("ascii")
    if len(text) > METADATA_LIMIT:
        raise RequestError(
            f"encoding_format bytes says in a header where each of the {len(value['data'])} vectors is, which gets too "
            "long; send fewer inputs, or use bytes_only",
            param="encoding_format",
        )
    return text
