"""`POST /v2/embed`: embeddings in Cohere's form."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from core.api import EngineClient, Pooled, RouteRequest, RouteResponse, VectorRequest
from core_plugin_pooling.answers import as_json
from core_plugin_pooling.encoding import to_base64
from core_plugin_pooling.protocol import CohereBody

_PURPOSES: Mapping[str, Sequence[str]] = MappingProxyType(
    {"search_query": ("query",), "search_document": ("document", "passage", "corpus")}
)
"""`input_type` -> what the model's makers may call it, where that is another name."""


async def embed(client: EngineClient, request: RouteRequest) -> RouteResponse:
    """Return one list of embeddings for each type that was asked for."""
    body, fields = await request.read(CohereBody)
    pooler = client.pooler("embed")
    headers = client.unread(fields, CohereBody.model_fields)
    purposes = _PURPOSES.get(body.input_type or "", (body.input_type or "",))
    params = {
        "dimensions": body.output_dimension,
        "truncate_prompt_tokens": _limit(body),
        "prompt_name": next((one for one in purposes if one in pooler.shape.prompts), None),
    }
    asked = VectorRequest(
        prompts=body.texts, task="embed", params=params, names={"prompts": "texts"}, **body.treatment()
    )
    done = await client.pool(asked, prefix="embd")
    return RouteResponse(await asyncio.to_thread(_answer, body, done), headers=headers)


def _answer(body: CohereBody, done: Pooled[np.ndarray]) -> bytes:
    kinds = body.embedding_types or ["float"]
    return as_json(
        {
            "id": done.id,
            "embeddings": {kind: [written(vector, kind) for vector in done.results] for kind in kinds},
            "texts": body.texts,
            "response_type": "embeddings_by_type",
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": done.usage.prompt}},
        }
    )


def _limit(body: CohereBody) -> int | None:
    """Cohere cuts at the end unless told not to."""
    if body.truncate == "NONE":
        return None
    return -1 if body.max_tokens is None else body.max_tokens


def written(vector: np.ndarray, kind: str) -> Any:
    """Return an embedding as this type.

    Binary types keep the sign of each number, eight to a byte, the first in the highest bit; `binary` shifts bytes to
    -128 .. 127.
    """
    if kind == "base64":
        return to_base64(vector, "float32", "little")
    if kind == "float":
        return vector
    packed = np.packbits(vector > 0).astype(np.int64)
    return (packed - 128 if kind == "binary" else packed).tolist()
