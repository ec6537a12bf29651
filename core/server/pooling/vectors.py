"""`POST /v1/embeddings`, `POST /pooling` and `POST /classify`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from core.api.errors import RequestError
from core.frontend.pooling.results import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
)
from core.server.generation import new_id
from core.server.pooling.data import data_call
from core.server.pooling.encoding import to_base64, to_bytes
from core.server.pooling.inputs import prompts_of
from core.server.pooling.protocol import ClassifyBody, EmbeddingBody, PoolingBody, VectorBody
from core.server.pooling.run import Encoded, PoolingCall, PoolingResponse, as_json, required_pooler, usage
from core.server.state import ServerState

METADATA_LIMIT = 48 * 1024
"""Most bytes of the header that says where vectors are; many clients read no longer headers than 64 KiB."""

BYTES = "application/octet-stream"


async def embeddings(state: ServerState, request: Request) -> Response:
    """Return embeddings in OpenAI's form."""
    body, fields = await state.read(request, EmbeddingBody)
    return PoolingResponse(await embedding_call(state, body), fields)


async def embedding_call(state: ServerState, body: EmbeddingBody) -> PoolingCall[EmbeddingOutput]:
    """Return the call that answers a body. Raises `ApiError`, `RequestError`."""
    pooler = required_pooler(state, "embed")
    prompts, params = await prompts_of(state, body), body.params()

    def render(results: list[EmbeddingRequestOutput], tokens: int) -> Encoded:
        return _encoded(state, body, [result.outputs.array for result in results], tokens, "embedding")

    return PoolingCall(state, body, partial(pooler.embed, prompts, params, param="input"), prompts, render)


async def pooling(state: ServerState, request: Request) -> Response:
    """Return what the model gives for a task, or what its I/O processor makes of `data`."""
    body, fields = await state.read(request, PoolingBody)
    if body.data is not None:
        return PoolingResponse(data_call(state, body), fields)
    pooler = required_pooler(state, body.task)
    task = body.task or pooler.tasks[0]
    prompts, params = await prompts_of(state, body), body.params()

    def render(results: list[PoolingRequestOutput[PoolingOutput]], tokens: int) -> Encoded:
        return _encoded(state, body, [result.outputs.data for result in results], tokens, "pooling")

    prepare = partial(pooler.encode, prompts, params, task, param="input")
    per_token = pooler.size if task.startswith("token_") else 0
    return PoolingResponse(PoolingCall(state, body, prepare, prompts, render, per_token), fields)


async def classify(state: ServerState, request: Request) -> Response:
    """Return the most likely label, and the probability of each."""
    body, fields = await state.read(request, ClassifyBody)
    pooler = required_pooler(state, "classify")
    prompts, params = await prompts_of(state, body), body.params()

    def render(results: list[ClassificationRequestOutput], tokens: int) -> Encoded:
        data = [_class(index, result.outputs) for index, result in enumerate(results)]
        return as_json({**_head(state, "classify"), "data": data, "usage": usage(tokens)})

    prepare = partial(pooler.classify, prompts, params, param="input")
    return PoolingResponse(PoolingCall(state, body, prepare, prompts, render), fields)


def _head(state: ServerState, prefix: str) -> dict[str, Any]:
    return {"id": new_id(prefix), "object": "list", "created": int(time.time()), "model": state.llm.model_name}


def _encoded(state: ServerState, body: VectorBody, vectors: Sequence[np.ndarray], tokens: int, kind: str) -> Encoded:
    """Write vectors as the request asked; `kind` is the object's name, and the field's where it has one."""
    form, dtype, endianness = body.encoding_format or "float", body.embed_dtype or "float32", body.endianness
    head, spent = _head(state, "embd" if kind == "embedding" else "pool"), usage(tokens)
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
    text = json.dumps(value, separators=(",", ":"))  # in ASCII, as a header is
    if len(text) > METADATA_LIMIT:
        raise RequestError(
            f"encoding_format bytes says in a header where each of the {len(value['data'])} vectors is, which gets too "
            "long; send fewer inputs, or use bytes_only",
            param="encoding_format",
        )
    return text
