"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.frontend.request import GenerationRequest, spelling
from core.server.answers import json_answer
from core.server.entry import render_alone
from core.server.errors import ApiError
from core.server.openai.messages import conversation
from core.server.openai.params import NAMES
from core.server.openai.prompts import check_ids, check_length
from core.server.openai.protocol import DetokenizeBody, TokenizeBody
from core.server.routes import Route
from core.server.state import ServerState


async def tokenize(state: ServerState, request: Request) -> Response:
    """Return the token ids of a text or a rendered conversation."""
    tokenizer = state.llm.tokenizer
    body, fields = await state.read(request, TokenizeBody)
    ids = await _ids(state, body)
    texts: list[str] | None = None
    if body.return_token_strs:
        texts = await asyncio.to_thread(lambda: [tokenizer.token(token) for token in ids])
    answer = {"count": len(ids), "max_model_len": state.llm.max_model_len, "tokens": ids, "token_strs": texts}
    return json_answer(answer, state.unread_fields(fields, TokenizeBody.model_fields))


async def detokenize(state: ServerState, request: Request) -> Response:
    """Return the text of token ids, special tokens included."""
    tokenizer = state.llm.tokenizer
    body, fields = await state.read(request, DetokenizeBody)
    check_length(body.tokens, state.llm.max_model_len, "tokens")
    check_ids(body.tokens, tokenizer.vocab_size, "tokens")
    with state.admitted():
        text = await asyncio.to_thread(tokenizer.decode, body.tokens, skip_special_tokens=False)
    return json_answer({"prompt": text}, state.unread_fields(fields, DetokenizeBody.model_fields))


async def tokenizer_info(state: ServerState, request: Request) -> Response:
    """Return the kind, the special tokens with their ids, and the chat template, where the server may show them."""
    if not state.options.server.tokenizer_info:
        message = "The tokenizer's settings are not shown: start the server with --tokenizer-info."
        raise ApiError(404, message, code="tokenizer_info_off")
    tokenizer = state.llm.tokenizer
    info = {
        "tokenizer_class": type(tokenizer).__name__,
        "vocab_size": tokenizer.vocab_size,
        "model_max_length": state.llm.max_model_len,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_ids": list(tokenizer.eos_ids),
        **{name: _plain(value) for name, value in tokenizer.special_tokens().items()},
        "added_tokens_decoder": {
            str(token): {"content": tokenizer.decode([token], skip_special_tokens=False), "special": True}
            for token in sorted(tokenizer.special_ids)
        },
        "chat_template": tokenizer.chat_template,
    }
    return json_answer(info)


async def _ids(state: ServerState, body: TokenizeBody) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "Give either prompt or messages.", param="prompt")
    if body.messages is not None:
        with spelling(NAMES):
            chat = conversation(body, add_special_tokens=bool(body.add_special_tokens))
        return (await render_alone(state, GenerationRequest(prompt=chat, names=NAMES))).tolist()
    text, special = body.prompt or "", body.add_special_tokens is not False
    return await state.tokenize(text, add_special_tokens=special)


def _plain(value: Any) -> Any:
    """Return a special token, which libraries may wrap, as the text that it is."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)


ROUTES = (
    Route("POST", "/tokenize", tokenize, TokenizeBody),
    Route("POST", "/detokenize", detokenize, DetokenizeBody),
    Route("GET", "/tokenizer_info", tokenizer_info),
)
