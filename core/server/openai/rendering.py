"""What a request becomes before the engine sees it: `/apply-template` and `/v1/.../render`. Nothing is generated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from core.api.errors import RequestError
from core.engine.sampling import SamplingParams
from core.frontend.request import GenerationRequest, spelling
from core.server.answers import json_answer
from core.server.body import read_model
from core.server.entry import engine_prompt, ready_chat
from core.server.interface import Prompt
from core.server.openai.chat import chat_request
from core.server.openai.completions import completion_requests
from core.server.openai.protocol import ChatBody, CompletionBody, refuse_unsupported
from core.server.state import ServerState


class RenderRoutes:
    """Answers with prompts instead of completions; bodies are those of the routes that generate."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def template(self, request: Request) -> Response:
        """Return a conversation as the text that the model reads."""
        body, fields = await self._read_chat(request)
        rendered = await self._render(chat_request(body, fields, self._state))
        return self._json({"prompt": rendered["prompt"]}, fields, ChatBody.model_fields)

    async def chat(self, request: Request) -> Response:
        """Return a chat request's prompt, token ids and sampling parameters."""
        body, fields = await self._read_chat(request)
        rendered = await self._render(chat_request(body, fields, self._state), bool(body.return_token_offsets))
        return self._json(rendered, fields, ChatBody.model_fields)

    async def completion(self, request: Request) -> Response:
        """Return the same for every prompt of a completion request."""
        body, fields = await read_model(request, CompletionBody, self._state.options.server.max_body_bytes)
        self._state.check_model(body.model)
        refuse_unsupported(fields)
        offsets = bool(body.return_token_offsets)
        rendered = [await self._render(one, offsets) for one in completion_requests(body, self._state)]
        return self._json(rendered, fields, CompletionBody.model_fields)

    async def _read_chat(self, request: Request) -> tuple[ChatBody, dict[str, Any]]:
        body, fields = await read_model(request, ChatBody, self._state.options.server.max_body_bytes)
        self._state.check_model(body.model)
        refuse_unsupported(fields)
        return body, fields

    async def _render(self, request: GenerationRequest, offsets: bool = False) -> dict[str, Any]:
        """Return what the engine would be sent; with `offsets` also where each token stands in the prompt's text."""
        found = await rendered(self._state, request)
        if offsets:
            tell = getattr(self._state.llm, "token_offsets", None)  # beyond the protocol
            found["token_offsets"] = None if tell is None else await tell(request, found["token_ids"])
        return found

    def _json(self, value: Any, fields: dict[str, Any], known: Any) -> Response:
        headers = self._state.unread_fields(fields, known)
        return json_answer(value, headers)


async def rendered(
    state: ServerState,
    request: GenerationRequest,
    settle: Callable[[SamplingParams, int], SamplingParams] = lambda params, room: params,
) -> dict[str, Any]:
    """Return what the engine would be sent for a request, as plain data. Raises `RequestError`.

    That includes the grammar of calls that are demanded, and everything else that the server adds on its own.

    Args:
        settle: What an API changes once it is known how many tokens a conversation leaves room for.
    """
    names, llm, params = request.names, state.llm, request.params
    if request.beams is not None:
        said = "use_beam_search: a beam search is not one request of the engine, but many"
        raise RequestError(said, param="use_beam_search", code="unsupported_parameter")
    if request.conversation is not None:
        ready = await ready_chat(state, request)
        params = settle(ready.request.params, llm.max_model_len - len(ready.ids))
        names = {**names, "prompt": names.get("messages", "messages")}
        prompt: Prompt = {"prompt_token_ids": ready.ids}
    else:
        prompt = engine_prompt(request)
    with spelling(names):
        prepared = await llm.prepare(prompt, params)
    ids = prepared.prompt.ids
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
