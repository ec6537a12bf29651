"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from core.server.anthropic.blocks import BlockWriter
from core.server.anthropic.errors import ANTHROPIC
from core.server.anthropic.job import MessageJob
from core.server.anthropic.protocol import MessagesBody, PromptBody
from core.server.anthropic.request import count_request, message_request, one_call
from core.server.body import read_model
from core.server.entry import OpenChat, open_chat, render
from core.server.openai.generation import new_id
from core.server.state import ServerState
from core.server.streaming import JobResponse

Route = tuple[str, str, Callable[[Request], Awaitable[Response]], type[BaseModel] | None]

PATH = "/v1/messages"
COUNT_PATH = f"{PATH}/count_tokens"
_UNUSED = frozenset({"metadata", "service_tier"})


def message_routes(state: ServerState) -> list[Route]:
    """Return method, path, endpoint and body of each route; their errors are Anthropic's."""
    state.dialects |= dict.fromkeys((PATH, COUNT_PATH), ANTHROPIC)
    routes = MessageRoutes(state)
    return [("POST", PATH, routes.create, MessagesBody), ("POST", COUNT_PATH, routes.count, PromptBody)]


class MessageRoutes:
    """Answers messages, and counts the tokens of their prompts."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def create(self, request: Request) -> Response:
        """Validate, render, and hand the generation to a response that runs it."""
        state = self._state
        body, fields = await read_model(request, MessagesBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        wanted = message_request(body, state.defaults, state.llm.max_model_len)
        chat = await open_chat(state, wanted, new_id("msg"))
        shows = not (body.thinking and body.thinking.display == "omitted")
        writer = BlockWriter(show_thinking=shows, one_call=one_call(body))
        job = MessageJob(chat.generation, chat.reader(), writer, cut=self._cut(chat))
        headers = self._unread(body, fields)
        return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers, dialect=ANTHROPIC)

    async def count(self, request: Request) -> Response:
        """Return how many tokens a prompt has."""
        state = self._state
        body, fields = await read_model(request, PromptBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        ids = await render(state, count_request(body))
        answer = orjson.dumps({"input_tokens": len(ids)})
        return Response(answer, headers=self._unread(body, fields), media_type="application/json")

    def _cut(self, chat: OpenChat) -> bool:
        """Lower the limit to what the model's length leaves: clients of this API ask for more than any answer needs."""
        generation = chat.generation
        prompt: Any = generation.prompts[0]
        room = self._state.llm.max_model_len - len(prompt["prompt_token_ids"])
        limit = generation.params.max_tokens
        if limit is None or limit <= room or room < 1:
            return False
        generation.params = generation.params.replace(max_tokens=room)
        return True

    def _unread(self, body: PromptBody, fields: Mapping[str, Any]) -> dict[str, str]:
        """Return the header that names what has no effect; how long thinking may be is the model's affair."""
        known = set(type(body).model_fields) - _UNUSED
        if body.thinking is not None and body.thinking.budget_tokens is not None:
            fields = {**fields, "thinking.budget_tokens": True}
        return self._state.unread_fields(fields, known)
