"""What a request asks for: its body, checked, with the conversation that it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from core.api.bodies import invalid
from core.api.serving import ToolChoice
from core.frontend.conversation import Conversation
from core.frontend.request import GenerationRequest, spelling
from core.server.caller import caller_of
from core.server.errors import ApiError
from core.server.openai.params import named_user
from core.server.openai.responses.answer import COMPLETED, INCOMPLETE
from core.server.openai.responses.conversation import to_messages
from core.server.openai.responses.items import Item, parse_input
from core.server.openai.responses.mcp.items import check_approvals
from core.server.openai.responses.mcp.offers import names_of
from core.server.openai.responses.params import NAMES, response_params, template_args
from core.server.openai.responses.protocol import ResponsesBody
from core.server.openai.responses.tools import Tool, Tools, choose_tools
from core.server.state import ServerState

STORED = "x-core-response-stored"
"""Header of every answer: whether the response can be had later."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body that passed every check.

    Attributes:
        earlier: Items of the conversation that the response continues.
        items: The input's own.
        request: What the model is asked first; with MCP servers among the tools it lacks theirs.
        kept: Whether the response can be had later.
    """

    body: ResponsesBody
    headers: dict[str, str]
    earlier: Sequence[Item]
    items: Sequence[Item]
    tools: Tools
    request: GenerationRequest
    kept: bool

    def turn(self, more: Sequence[Item], tools: Tools, choice: ToolChoice, max_tokens: int | None) -> GenerationRequest:
        """Return what the model is asked in a turn of a response that calls tools itself.

        Args:
            more: What the response holds so far.
            tools: Those of MCP servers among them.
        """
        items, params = [*self.earlier, *self.items, *more], self.request.params
        with spelling(NAMES):
            messages = to_messages(self.body.instructions, items, names_of(tools.offers))
            chat = _conversation(self.body, messages, tools.offered, choice)
            return replace(self.request, prompt=chat, params=params.replace(max_tokens=max_tokens))


async def read_asked(state: ServerState, request: Request) -> Asked:
    """Return what a request asks for; nothing has been rendered yet. Raises `ApiError` and `RequestError`."""
    body, fields = await state.read(request, ResponsesBody)
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "needs stream to be true")
    kept = _kept(state, body)
    earlier = _earlier(state, body.previous_response_id)
    items = parse_input(body.input, state.responses.finder() if state.responses.enabled else None)
    tools = choose_tools(body.tools, body.tool_choice, state.remote)
    check_approvals([*earlier, *items], [server.label for server in tools.servers])
    with spelling(NAMES):
        wanted = _request(state, body, [*earlier, *items], tools)
    headers = {**state.unread_fields(fields, ResponsesBody.model_fields), STORED: str(kept).lower()}
    return Asked(body, headers, earlier, items, tools, wanted, kept)


def _request(state: ServerState, body: ResponsesBody, items: Sequence[Item], tools: Tools) -> GenerationRequest:
    return GenerationRequest(
        prompt=_conversation(body, to_messages(body.instructions, items), tools.offered, tools.choice),
        params=response_params(body, state.defaults, state.llm.max_model_len),
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        caller=caller_of(named_user(body)),
        names=NAMES,
    )


def _kept(state: ServerState, body: ResponsesBody) -> bool:
    """Whether the response is kept. A server that keeps none answers all the same: `store` is OpenAI's default."""
    kept = state.responses.enabled and body.store is not False
    if body.background and not kept:
        why = "needs a response that is kept: --response-store at the start, and not store: false"
        raise invalid("background", why, code="unsupported_parameter")
    return kept


def _earlier(state: ServerState, previous: str | None) -> list[Item]:
    if previous is None:
        return []
    record = state.responses.get(previous, param="previous_response_id")
    status = record.answer.status
    if status not in (COMPLETED, INCOMPLETE):
        message = f"The response '{previous[:100]}' cannot be continued: it is {status}."
        raise ApiError(400, message, param="previous_response_id", code="response_not_finished")
    return record.conversation()


def _conversation(
    body: ResponsesBody, messages: Sequence[Mapping[str, Any]], offered: Sequence[Tool], choice: ToolChoice
) -> Conversation:
    return Conversation(
        messages=messages,
        tools=offered,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        template_args=template_args(body),
    )
