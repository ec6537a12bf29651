"""What a request becomes before the engine sees it: `/apply-template` and `/v1/.../render`. Nothing is generated."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response

from core.frontend.request import GenerationRequest, spelling
from core.server.body import read_model
from core.server.entry import engine_prompt
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
        rendered = await self._render(chat_request(body, fields, self._state))
        return self._json(rendered, fields, ChatBody.model_fields)

    async def completion(self, request: Request) -> Response:
        """Return the same for every prompt of a completion request."""
        body, fields = await read_model(request, CompletionBody, self._state.options.server.max_body_bytes)
        self._state.check_model(body.model)
        refuse_unsupported(fields)
        rendered = [await self._render(one) for one in completion_requests(body, self._state)]
        return self._json(rendered, fields, CompletionBody.model_fields)

    async def _read_chat(self, request: Request) -> tuple[ChatBody, dict[str, Any]]:
        body, fields = await read_model(request, ChatBody, self._state.options.server.max_body_bytes)
        self._state.check_model(body.model)
        refuse_unsupported(fields)
        return body, fields

    async def _render(self, request: GenerationRequest) -> dict[str, Any]:
        llm = self._state.llm
        prompt = await engine_prompt(self._state, request)
        with spelling({**request.names, "prompt": "messages"} if request.conversation else request.names):
            prepared = await llm.prepare(prompt, request.params)
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

    def _json(self, value: Any, fields: dict[str, Any], known: Any) -> Response:
        headers = self._state.unread_fields(fields, known)
        return Response(orjson.dumps(value), headers=headers, media_type="application/json")
