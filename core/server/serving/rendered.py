"""Preview of what the engine would be sent for a request, as plain data."""

from __future__ import annotations

from typing import Any

import msgspec

from core.api.errors import RequestError
from core.frontend.request import GenerationRequest
from core.frontend.spelling import renamed
from core.server.serving.entry import Settle, as_asked, ready_chat
from core.server.state import ServerState


async def rendered(
    state: ServerState, request: GenerationRequest, settle: Settle = as_asked, *, offsets: bool = False
) -> dict[str, Any]:
    """Return what the engine would be sent for a request, as plain data. Raises `RequestError`.

    That includes the grammar of calls that are demanded, and everything else that the server adds on its own.

    Args:
        offsets: With where each token stands in the prompt's text.

    Raises:
        ApiError: 503, the server takes no more requests.
    """
    if request.beams is not None:
        said = "beams: a beam search is not one request of the engine, but many"
        raise renamed(RequestError(said, param="beams", code="unsupported_parameter"), request.names)
    with state.admitted():
        found = await _rendered(state, request, settle)
        if offsets:
            found["token_offsets"] = await state.llm.token_offsets(request, found["token_ids"])
        return found


async def _rendered(state: ServerState, request: GenerationRequest, settle: Settle) -> dict[str, Any]:
    llm, ready = state.llm, request
    if request.conversation is not None:
        ready, _ = await ready_chat(state, request, settle)
    prepared = await llm.prepare(ready)
    ids = prepared.prompt.ids.tolist()
    return {
        "model": llm.model_name,
        "prompt": llm.tokenizer.decode(ids, skip_special_tokens=False),
        "token_ids": ids,
        "count": len(ids),
        "max_model_len": llm.max_model_len,
        "sampling_params": {
            name: msgspec.to_builtins(value) for name, value in msgspec.structs.asdict(prepared.params).items()
        },
        "stop_token_ids": prepared.stop_ids,
        "priority": request.priority,
        "cache_salt": request.cache_salt,
    }
