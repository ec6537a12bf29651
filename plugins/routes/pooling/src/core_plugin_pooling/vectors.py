"""`POST /v1/embeddings`, `POST /pooling` and `POST /classify`."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import numpy as np

from core.api import EngineClient, Pooled, RequestError, RouteRequest, RouteResponse, VectorRequest
from core_plugin_pooling.answers import as_json, spent
from core_plugin_pooling.data import check_alone, data_answer
from core_plugin_pooling.encoding import to_base64, to_bytes
from core_plugin_pooling.inputs import prompts_of
from core_plugin_pooling.protocol import ClassifyBody, EmbeddingBody, InputBody, PoolingBody, VectorBody

METADATA_LIMIT = 48 * 1024
"""Most bytes of the header that says where vectors are; many clients read no longer headers than 64 KiB."""

BYTES = "application/octet-stream"


async def embeddings(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return embeddings in OpenAI's form."""
    body, fields = await request.read(EmbeddingBody)
    client.pooler("embed")
    asked = _asked(body, "embed")
    headers = client.unread(fields, EmbeddingBody.model_fields)
    done = await client.pool(asked, prefix="embd")
    return await asyncio.to_thread(_encoded, client.model_name, body, done, "embedding", headers)


async def pooling(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return what the model gives for a task, or what its I/O processor makes of `data`."""
    body, fields = await request.read(PoolingBody)
    client.pooler(None if body.data is not None else body.task)
    if body.data is not None:
        check_alone(body)
        return await data_answer(client, body, client.unread(fields, PoolingBody.model_fields))
    asked = _asked(body, body.task)
    headers = client.unread(fields, PoolingBody.model_fields)
    done = await client.pool(asked, prefix="pool")
    return await asyncio.to_thread(_encoded, client.model_name, body, done, "pooling", headers)


async def classify(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return the most likely label, and the probability of each."""
    body, fields = await request.read(ClassifyBody)
    labels = client.pooler("classify").shape.labels
    asked = _asked(body, "classify")
    headers = client.unread(fields, ClassifyBody.model_fields)
    done = await client.pool(asked, prefix="classify")

    def answer() -> bytes:
        data = [_class(index, numbers, labels) for index, numbers in enumerate(done.results)]
        return as_json({**_head(client.model_name, done), "data": data, "usage": spent(done.usage)})

    return RouteResponse(await asyncio.to_thread(answer), headers=headers)


def _asked(body: InputBody, task: str | None) -> VectorRequest:
    prompts = prompts_of(body)
    return VectorRequest(
        prompts=prompts, task=task, params=body.params(), names={"prompts": "input"}, **body.treatment()
    )


def _head(model: str, done: Pooled[np.ndarray]) -> dict[str, Any]:
    return {"id": done.id, "object": "list", "created": int(time.time()), "model": model}


def _encoded(
    model: str, body: VectorBody, done: Pooled[np.ndarray], kind: str, headers: dict[str, str]
) -> RouteResponse:
    """Write vectors as the request asked; `kind` is the object's name, and the field's where it has one."""
    form, dtype, endianness = body.encoding_format or "float", body.embed_dtype or "float32", body.endianness
    head, usage = _head(model, done), spent(done.usage)
    if form in ("bytes", "bytes_only"):
        data, items = to_bytes(done.results, dtype, endianness or "native")
        more = {"metadata": _metadata({**head, "data": items, "usage": usage})} if form == "bytes" else {}
        return RouteResponse(data, media_type=BYTES, headers={**headers, **more})
    key = "embedding" if kind == "embedding" else "data"
    entries = []
    for index, vector in enumerate(done.results):
        written = vector if form == "float" else to_base64(vector, dtype, endianness or "native")
        entries.append({"index": index, "object": kind, key: written})
    return RouteResponse(as_json({**head, "data": entries, "usage": usage}), headers=headers)


def _class(index: int, numbers: np.ndarray, labels: tuple[str, ...]) -> dict[str, Any]:
    label = labels[int(numbers.argmax())]
    return {"index": index, "label": label, "probs": numbers.tolist(), "num_classes": len(numbers)}


def _metadata(value: dict[str, Any]) -> str:
    text = json.dumps(value, separators=(",", ":"))  # in ASCII, as a header is
    if len(text) > METADATA_LIMIT:
        raise RequestError(
            f"encoding_format bytes says in a header where each of the {len(value['data'])} vectors is, which gets too "
            "long; send fewer inputs, or use bytes_only",
            param="encoding_format",
        )
    return text
