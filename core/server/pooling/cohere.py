"""`POST /v2/embed`: embeddings in Cohere's form."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from core.frontend.pooling.model import DOCUMENTS
from core.frontend.pooling.results import EmbeddingRequestOutput, PoolingParams
from core.server.generation import new_id
from core.server.pooling.encoding import to_base64
from core.server.pooling.protocol import CohereBody
from core.server.pooling.run import Encoded, PoolingCall, PoolingResponse, as_json, required_pooler
from core.server.state import ServerState

_PURPOSES: Mapping[str, Sequence[str]] = types.MappingProxyType(
    {"search_query": ("query",), "search_document": DOCUMENTS}
)
"""`input_type` -> what the model's makers may call it, where that is another name."""


async def cohere_embed(state: ServerState, request: Request) -> Response:
    """Return one list of embeddings for each type that was asked for."""
    body, fields = await state.read(request, CohereBody)
    pooler = required_pooler(state, "embed")
    kinds = body.embedding_types or ["float"]

    def render(results: list[EmbeddingRequestOutput], tokens: int) -> Encoded:
        vectors = [result.outputs.array for result in results]
        answer = {
            "id": new_id("embd"),
            "embeddings": {kind: [written(vector, kind) for vector in vectors] for kind in kinds},
            "texts": body.texts,
            "response_type": "embeddings_by_type",
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}},
        }
        return as_json(answer)

    params = PoolingParams(
        dimensions=body.output_dimension,
        truncate_prompt_tokens=_limit(body),
        prompt_name=pooler.prompt_for(_PURPOSES.get(body.input_type or "", (body.input_type or "",))),
    )
    prepare = partial(pooler.embed, body.texts, params, param="texts")
    return PoolingResponse(PoolingCall(state, body, prepare, body.texts, render), fields)


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
