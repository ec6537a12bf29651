"""What a request becomes before the engine sees it: `/apply-template` and `/v1/.../render`. Nothing is generated."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from core.api.errors import RequestError
from core.frontend.request import GenerationRequest
from core.server.answers import json_answer
from core.server.entry import Settle, as_asked, ready_chat
from core.server.openai.chat import chat_request
from core.server.openai.completions import completion_requests
from core.server.openai.protocol import ChatBody, CompletionBody
from core.server.routes import Route
from core.server.state import ServerState


async def apply_template(state: ServerState, request: Request) -> Response:
    """Return a conversation as the text that the model reads."""
    body, fields = await state.read(request, ChatBody)
    shown = await rendered(state, chat_request(body, fields, state))
    return json_answer({"prompt": shown["prompt"]}, state.unread_fields(fields, ChatBody.model_fields))


async def render_chat(state: ServerState, request: Request) -> Response:
    """Return a chat request's prompt, token ids and sampling parameters."""
    body, fields = await state.read(request, ChatBody)
    shown = await _with_offsets(state, chat_request(body, fields, state), bool(body.return_token_offsets))
    return json_answer(shown, state.unread_fields(fields, ChatBody.model_fields))


async def render_completion(state: ServerState, request: Request) -> Response:
    """Return the same for every prompt of a completion request."""
    body, fields = await state.read(request, CompletionBody)
    offsets = bool(body.return_token_offsets)
    shown = [await _with_offsets(state, one, offsets) for one in completion_requests(body, state)]
    return json_answer(shown, state.unread_fields(fields, CompletionBody.model_fields))


async def _with_offsets(state: ServerState, request: GenerationRequest, offsets: bool) -> dict[str, Any]:
    """Return what the engine would be sent; with `offsets` also where each token stands in the prompt's text."""
    found = await rendered(state, request)
    if offsets:
        found["token_offsets"] = await state.llm.token_offsets(request, found["token_ids"])
    return found


async def rendered(state: ServerState, request: GenerationRequest, settle: Settle = as_asked) -> dict[str, Any]:
    """Return what the engine would be sent for a request, as plain data. Raises `RequestError`.

    That includes the grammar of calls that are demanded, and everything else that the server adds on its own.

    Raises:
        ApiError: 503, the server takes no more requests.
    """
    if request.beams is not None:
        said = "use_beam_search: a beam search is not one request of the engine, but many"
        raise RequestError(said, param="use_beam_search", code="unsupported_parameter")
    with state.admitted():
        return await _rendered(state, request, settle)


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


ROUTES = (
    Route("POST", "/apply-template", apply_template, ChatBody),
    Route("POST", "/v1/chat/completions/render", render_chat, ChatBody),
    Route("POST", "/v1/completions/render", render_completion, CompletionBody),
)
