"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.frontend.request import GenerationRequest, spelling
from core.server.answers import json_answer
from core.server.body import read_model
from core.server.entry import render
from core.server.errors import ApiError
from core.server.openai.messages import conversation
from core.server.openai.params import NAMES
from core.server.openai.prompts import check_ids
from core.server.openai.protocol import Body, DetokenizeBody, TokenizeBody, refuse_unsupported
from core.server.state import ServerState

_THREAD_CHARS = 50_000


class TokenizeRoutes:
    """Shows how texts and conversations become tokens, and tokens text."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def tokenize(self, request: Request) -> Response:
        """Return the token ids of a text or a rendered conversation."""
        llm = self._state.llm
        body, fields = await read_model(request, TokenizeBody, self._state.options.server.max_body_bytes)
        self._state.check_model(body.model)
        refuse_unsupported(fields)
        ids = await self._ids(body)
        answer: dict[str, Any] = {"count": len(ids), "max_model_len": llm.max_model_len, "tokens": ids}
        answer["token_strs"] = [llm.tokenizer.token(token) for token in ids] if body.return_token_strs else None
        return self._json(answer, fields, TokenizeBody)

    async def detokenize(self, request: Request) -> Response:
        """Return the text of token ids, special tokens included."""
        tokenizer = self._state.llm.tokenizer
        body, fields = await read_model(request, DetokenizeBody, self._state.options.server.max_body_bytes)
        self._state.check_model(body.model)
        check_ids(body.tokens, tokenizer.vocab_size, "tokens")
        text = await asyncio.to_thread(tokenizer.decode, body.tokens, skip_special_tokens=False)
        return self._json({"prompt": text}, fields, DetokenizeBody)

    async def _ids(self, body: TokenizeBody) -> list[int]:
        if (body.prompt is None) == (body.messages is None):
            raise ApiError(400, "Give either prompt or messages.", param="prompt")
        if body.messages is not None:
            with spelling(NAMES):
                chat = conversation(body, add_special_tokens=bool(body.add_special_tokens))
            return await render(self._state, GenerationRequest(prompt=chat, names=NAMES))
        text, special = body.prompt or "", body.add_special_tokens is not False
        encode = self._state.llm.tokenizer.encode
        if len(text) > _THREAD_CHARS:
            return await asyncio.to_thread(encode, text, add_special_tokens=special)
        return encode(text, add_special_tokens=special)

    def _json(self, value: dict[str, Any], fields: dict[str, Any], kind: type[Body]) -> Response:
        headers = self._state.unread_fields(fields, kind.model_fields)
        return json_answer(value, headers)
