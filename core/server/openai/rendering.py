"""What a request becomes before the engine sees it: `/apply-template` and `/v1/.../render`. Nothing is generated."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.frontend.request import GenerationRequest
from core.server.answers import json_answer
from core.server.openai.chat import chat_request
from core.server.openai.completions import completion_requests
from core.server.openai.protocol import ChatBody, CompletionBody
from core.server.rendered import rendered
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


ROUTES = (
    Route("POST", "/apply-template", apply_template, ChatBody),
    Route("POST", "/v1/chat/completions/render", render_chat, ChatBody),
    Route("POST", "/v1/completions/render", render_completion, CompletionBody),
)
