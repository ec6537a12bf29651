"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from core.frontend.answering.parsing import THINKING_SWITCHES
from core.frontend.answering.thinking import knows_thinking
from core.frontend.request import GenerationRequest
from core.server.answers import json_answer
from core.server.anthropic.blocks import BlockWriter
from core.server.anthropic.errors import ANTHROPIC
from core.server.anthropic.job import MessageJob
from core.server.anthropic.protocol import MessagesBody, PromptBody, refuse_unsupported
from core.server.anthropic.request import count_request, message_request, one_call, thinking_budget, within
from core.server.body import read_model
from core.server.entry import OpenChat, open_chat, render
from core.server.openai.generation import new_id
from core.server.openai.rendering import rendered
from core.server.state import ServerState
from core.server.streaming import JobResponse

Route = tuple[str, str, Callable[[Request], Awaitable[Response]], type[BaseModel] | None]

PATH = "/v1/messages"
COUNT_PATH = f"{PATH}/count_tokens"
VERSION_HEADER = b"anthropic-version"
"""What every client of this API sends, and nobody else."""

_UNUSED = frozenset({"metadata", "service_tier"})


def message_routes(state: ServerState) -> list[Route]:
    """Return method, path, endpoint and body of each route; errors are Anthropic's, here and for its clients."""
    state.mounted_dialects[PATH] = ANTHROPIC  # also for what there is not, such as batches
    state.client_dialects[VERSION_HEADER] = ANTHROPIC
    routes = MessageRoutes(state)
    return [
        ("POST", PATH, routes.create, MessagesBody),
        ("POST", f"{PATH}/render", routes.render, MessagesBody),
        ("POST", COUNT_PATH, routes.count, PromptBody),
    ]


class MessageRoutes:
    """Answers messages, and counts the tokens of their prompts."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def create(self, request: Request) -> Response:
        """Validate, render, and hand the generation to a response that runs it."""
        state = self._state
        body, wanted, headers = await self._read(request)
        chat = await open_chat(state, wanted, new_id("msg"))
        shows = not (body.thinking and body.thinking.display == "omitted")
        writer = BlockWriter(show_thinking=shows, one_call=one_call(body))
        job = MessageJob(chat.generation, chat.reader(), writer, cut=self._cut(chat))
        return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers, dialect=ANTHROPIC)

    async def render(self, request: Request) -> Response:
        """Return what the engine would be sent; nothing is generated."""
        _, wanted, headers = await self._read(request)
        shown = await rendered(self._state, wanted, within)
        return json_answer(shown, headers)

    async def count(self, request: Request) -> Response:
        """Return how many tokens a prompt has."""
        state = self._state
        body, fields = await read_model(request, PromptBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        refuse_unsupported(fields)
        ids = await render(state, count_request(body))
        return json_answer({"input_tokens": len(ids)}, self._unread(body, fields))

    async def _read(self, request: Request) -> tuple[MessagesBody, GenerationRequest, dict[str, str]]:
        """Return the body, what it asks for, and the header that names what has no effect."""
        state = self._state
        body, fields = await read_model(request, MessagesBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        refuse_unsupported(fields)
        bounds = knows_thinking(state.parser, state.llm.tokenizer)
        wanted = message_request(body, state.defaults, state.llm.max_model_len, bounds=bounds)
        return body, wanted, self._unread(body, fields, bounds=bounds)

    def _cut(self, chat: OpenChat) -> bool:
        """Fit the limit into the model's length; say whether that lowered it."""
        generation = chat.generation
        prompt: Any = generation.prompts[0]
        asked = generation.params
        generation.params = within(asked, self._state.llm.max_model_len - len(prompt["prompt_token_ids"]))
        return generation.params is not asked

    def _unread(self, body: PromptBody, fields: Mapping[str, Any], *, bounds: bool = True) -> dict[str, str]:
        """Return the header that names what has no effect."""
        known = set(type(body).model_fields) - _UNUSED
        if thinking_budget(body) is not None and not bounds:
            fields = {**fields, "thinking.budget_tokens": True}
        variables = getattr(self._state.llm, "template_variables", None)  # beyond the protocol
        switched_off = body.thinking is not None and body.thinking.type == "disabled"
        if switched_off and variables is not None and variables.isdisjoint(THINKING_SWITCHES):
            known -= {"thinking"}
        return self._state.unread_fields(fields, known)
