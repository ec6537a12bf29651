"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.frontend.answering.parsing import THINKING_SWITCHES
from core.frontend.answering.thinking import knows_thinking
from core.frontend.request import GenerationRequest
from core.server.answers import json_answer
from core.server.anthropic.blocks import BlockWriter
from core.server.anthropic.errors import ANTHROPIC
from core.server.anthropic.job import MessageJob
from core.server.anthropic.protocol import MessagesBody, PromptBody
from core.server.anthropic.request import count_request, message_request, one_call, thinking_budget, within
from core.server.entry import OpenChat, open_chat, render_alone
from core.server.openai.generation import new_id
from core.server.openai.rendering import rendered
from core.server.routes import Route
from core.server.state import ServerState
from core.server.streaming import JobResponse

PATH = "/v1/messages"
VERSION_HEADER = b"anthropic-version"
"""What every client of this API sends, and nobody else."""

_UNUSED = frozenset({"service_tier"})


async def create(state: ServerState, request: Request) -> Response:
    """Validate, render, and hand the generation to a response that runs it."""
    body, wanted, headers = await _read(state, request)
    chat = await open_chat(state, wanted, new_id("msg"), settle=within)
    shows = not (body.thinking and body.thinking.display == "omitted")
    writer = BlockWriter(show_thinking=shows, one_call=one_call(body))
    job = MessageJob(chat.generation, chat.answer.reader(), writer, cut=_cut(chat))
    return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers, dialect=ANTHROPIC)


async def render_message(state: ServerState, request: Request) -> Response:
    """Return what the engine would be sent; nothing is generated."""
    _, wanted, headers = await _read(state, request)
    return json_answer(await rendered(state, wanted, within), headers)


async def count_tokens(state: ServerState, request: Request) -> Response:
    """Return how many tokens a prompt has."""
    body, fields = await state.read(request, PromptBody)
    ids = await render_alone(state, count_request(body))
    return json_answer({"input_tokens": len(ids)}, _unread(state, body, fields))


async def _read(state: ServerState, request: Request) -> tuple[MessagesBody, GenerationRequest, dict[str, str]]:
    """Return the body, what it asks for, and the header that names what has no effect."""
    body, fields = await state.read(request, MessagesBody)
    bounds = knows_thinking(state.parser, state.llm.tokenizer)
    wanted = message_request(body, state.defaults, state.llm.max_model_len, bounds=bounds)
    return body, wanted, _unread(state, body, fields, bounds=bounds)


def _cut(chat: OpenChat) -> bool:
    """Whether the limit was lowered to what the model's length leaves."""
    return chat.generation.params is not chat.answer.params


def _unread(state: ServerState, body: PromptBody, fields: Mapping[str, Any], *, bounds: bool = True) -> dict[str, str]:
    """Return the header that names what has no effect."""
    known = set(type(body).model_fields) - _UNUSED
    if thinking_budget(body) is not None and not bounds:
        fields = {**fields, "thinking.budget_tokens": True}
    variables = state.llm.template_variables
    switched_off = body.thinking is not None and body.thinking.type == "disabled"
    if switched_off and variables is not None and variables.isdisjoint(THINKING_SWITCHES):
        known -= {"thinking"}
    return state.unread_fields(fields, known)


ROUTES = (
    Route("POST", PATH, create, MessagesBody),
    Route("POST", f"{PATH}/render", render_message, MessagesBody),
    Route("POST", f"{PATH}/count_tokens", count_tokens, PromptBody),
)
