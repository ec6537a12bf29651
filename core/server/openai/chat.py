"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.api.serving import ToolChoice
from core.frontend.answering.parsing import THINKING_SWITCHES
from core.frontend.conversation import Conversation
from core.frontend.request import GenerationRequest, spelling
from core.server.entry import OpenChat, open_chat
from core.server.generation import new_id
from core.server.openai.chat_format import ChatFormat
from core.server.openai.job import ApiJob
from core.server.openai.messages import conversation
from core.server.openai.params import (
    beam_rules,
    chat_names,
    chat_params,
    check_stream,
    interval,
    rendered_only,
    tokens_as_ids,
    treatment,
    unasked_usage,
    unsampled,
)
from core.server.openai.protocol import ChatBody, StreamOptions
from core.server.openai.shown import Shown
from core.server.state import ServerState
from core.server.streaming import JobResponse

EFFORT = "reasoning_effort"
"""A field of the body that is a variable of some templates."""


async def chat_completions(state: ServerState, request: Request) -> Response:
    """Validate, render, and hand the generation to a response that runs it."""
    body, fields = await state.read(request, ChatBody)
    check_stream(body)
    job, headers = await chat_job(state, body, fields)
    return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers)


async def chat_job(state: ServerState, body: ChatBody, fields: dict[str, Any]) -> tuple[ApiJob, dict[str, str]]:
    """Return what answers a body, and the headers that belong to the answer. Raises `ApiError`, `RequestError`."""
    unread = {**_unread(state, body), **unsampled(body), **rendered_only(body), **unasked_usage(body)}
    known = [name for name in (*ChatBody.model_fields, *_effort(state, fields)) if name not in unread]
    headers = state.unread_fields({**fields, **unread}, known)
    wanted = chat_request(body, fields, state)
    chat = await open_chat(state, wanted, new_id("chatcmpl"), interval=interval(body, state))
    format = _format(state, body, wanted, chat)
    return ApiJob(chat.generation, format, body.stream_options or StreamOptions()), headers


def _format(state: ServerState, body: ChatBody, wanted: GenerationRequest, chat: OpenChat) -> ChatFormat:
    said = wanted.conversation
    return ChatFormat(
        state.llm.tokenizer,
        top_logprobs=wanted.params.logprobs,
        return_ids=bool(body.return_token_ids),
        answer=chat.answer if chat.answer.parser else None,
        echo=said.tail if said and body.echo else "",
        shown=Shown(
            reasoning=body.include_reasoning is not False,
            many_calls=body.parallel_tool_calls is not False,
            tokens_as_ids=tokens_as_ids(body, state),
            special_tokens=not chat.generation.params.skip_special_tokens,
            prompt_text=bool(body.return_prompt_text),
        ),
    )


def chat_request(body: ChatBody, fields: dict[str, Any], state: ServerState) -> GenerationRequest:
    """Return what a chat body asks for. Raises `RequestError` and `ApiError`."""
    names = chat_names(body)
    with spelling(names):
        chat: Conversation = conversation(
            body,
            tool_choice=ToolChoice.read(body.tool_choice),
            parallel_tool_calls=body.parallel_tool_calls is not False,
            add_special_tokens=bool(body.add_special_tokens),
            template_args={**_effort(state, fields), **(body.chat_template_kwargs or {})},
        )
        params = chat_params(body, state)
        beams = beam_rules(body, params)
        return GenerationRequest(prompt=chat, params=params, beams=beams, names=names, **treatment(body))


def _unread(state: ServerState, body: ChatBody) -> dict[str, Any]:
    """Return what is meant for the template and neither the model's template nor a parser reads, as fields."""
    variables = state.llm.template_variables
    if variables is None or body.chat_template is not None:
        return {}
    known = variables if state.parser is None else variables | {"tools", *THINKING_SWITCHES}
    if ToolChoice.read(body.tool_choice).demands:
        known |= {"tools"}  # a demanded call is read with or without a parser
    unread = [f"chat_template_kwargs.{name}" for name in body.chat_template_kwargs or () if name not in known]
    unread += [name for name in ("tools", "documents") if getattr(body, name) and name not in known]
    return dict.fromkeys(unread, True)


def _effort(state: ServerState, fields: dict[str, Any]) -> dict[str, Any]:
    """Return how hard to think, as far as the model's template knows of it."""
    effort = fields.get(EFFORT)
    variables = state.llm.template_variables or frozenset()
    if not isinstance(effort, str):
        return {}
    found: dict[str, Any] = {EFFORT: effort} if EFFORT in variables else {}
    if effort == "none":
        found |= {name: False for name in THINKING_SWITCHES if name in variables}
    return found
