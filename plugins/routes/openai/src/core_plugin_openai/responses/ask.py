"""A request for a response: its body, checked, with the conversation that it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.api import ChatRequest, EngineClient, RequestError, RouteRequest, ToolChoice
from core.api.bodies import invalid
from core_plugin_openai.params import gathered, named_user
from core_plugin_openai.responses.answer import COMPLETED, INCOMPLETE
from core_plugin_openai.responses.conversation import to_messages
from core_plugin_openai.responses.items import Item, parse_input
from core_plugin_openai.responses.mcp.items import check_approvals
from core_plugin_openai.responses.mcp.offers import names_of
from core_plugin_openai.responses.params import asked_form, sampling, template_args, thinking
from core_plugin_openai.responses.protocol import ResponsesBody
from core_plugin_openai.responses.shared import Shared
from core_plugin_openai.responses.store import ResponseStore
from core_plugin_openai.responses.tools import Tools, choose_tools

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
    request: ChatRequest
    kept: bool

    def turn(self, more: Sequence[Item], tools: Tools, choice: ToolChoice, max_tokens: int | None) -> ChatRequest:
        """Return what the model is asked in a turn of a response that calls tools itself.

        Args:
            more: What the response holds so far.
            tools: Those of MCP servers among them.
        """
        items = [*self.earlier, *self.items, *more]
        return replace(
            self.request,
            messages=to_messages(self.body.instructions, items, names_of(tools.offers)),
            tools=tools.offered,
            tool_choice=choice,
            sampling={**self.request.sampling, "max_tokens": max_tokens},
        )


async def read_asked(shared: Shared, request: RouteRequest) -> Asked:
    """Return what a request asks for; nothing has been rendered yet. Raises `RequestError`."""
    body, fields = await request.read(ResponsesBody)
    client, store = shared.client, shared.store
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "needs stream to be true")
    kept = _kept(store, body)
    earlier = _earlier(store, body.previous_response_id)
    items = parse_input(body.input, store.finder() if store.enabled else None)
    tools = choose_tools(body.tools, body.tool_choice, shared.servers)
    check_approvals([*earlier, *items], [server.label for server in tools.servers])
    wanted = _request(client, body, fields, [*earlier, *items], tools)
    if tools.servers:  # they are asked first, and should not be for what cannot be answered
        client.check(wanted)
    headers = {
        **client.unread(fields, ResponsesBody.model_fields.keys() | client.plugin_fields.keys()),
        STORED: str(kept).lower(),
    }
    return Asked(body, headers, earlier, items, tools, wanted, kept)


def _request(
    client: EngineClient, body: ResponsesBody, sent: Mapping[str, Any], items: Sequence[Item], tools: Tools
) -> ChatRequest:
    structured, names = asked_form(body)
    return ChatRequest(
        messages=to_messages(body.instructions, items),
        tools=tools.offered,
        tool_choice=tools.choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        thinking=thinking(body),
        template_args=template_args(body),
        sampling=sampling(client, body, sent),
        structured=structured,
        interval=gathered(body, client.settings["stream_interval"]),
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        user=named_user(body),
        names=names,
    )


def _kept(store: ResponseStore, body: ResponsesBody) -> bool:
    """Whether the response is kept. A server that keeps none answers all the same: `store` is OpenAI's default."""
    kept = store.enabled and body.store is not False
    if body.background and not kept:
        why = "needs a response that is kept: --response-store at the start, and not store: false"
        raise invalid("background", why, code="unsupported_parameter")
    return kept


def _earlier(store: ResponseStore, previous: str | None) -> list[Item]:
    if previous is None:
        return []
    record = store.get(previous, param="previous_response_id")
    status = record.answer.status
    if status not in (COMPLETED, INCOMPLETE):
        message = f"The response '{previous[:100]}' cannot be continued: it is {status}."
        raise RequestError(message, param="previous_response_id", code="response_not_finished")
    return record.conversation()
