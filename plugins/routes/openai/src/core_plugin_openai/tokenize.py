"""Answers of `POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`."""

from __future__ import annotations

import asyncio
from typing import Any

from core.api import ChatRequest, EngineClient, RequestError
from core_plugin_openai.chat import conversation
from core_plugin_openai.params import NAMES
from core_plugin_openai.prompts import check_length
from core_plugin_openai.protocol import DetokenizeBody, TokenizeBody


async def tokenize(client: EngineClient, body: TokenizeBody) -> dict[str, Any]:
    """Return the token ids of a text or a conversation. Raises `RequestError`."""
    ids = list(await _ids(client, body))
    texts: list[str] | None = None
    if body.return_token_strs:
        texts = await asyncio.to_thread(lambda: [client.tokenizer.token(token) for token in ids])
    return {"count": len(ids), "max_model_len": client.max_model_len, "tokens": ids, "token_strs": texts}


async def detokenize(client: EngineClient, body: DetokenizeBody) -> dict[str, Any]:
    """Return the text of token ids. Raises `RequestError`."""
    check_length(body.tokens, client.max_model_len, "tokens")
    vocab = client.tokenizer.vocab_size
    if max(body.tokens, default=0) >= vocab:
        raise RequestError(f"tokens: token ids must be integers from 0 to {vocab - 1}.", param="tokens")
    return {"prompt": await client.detokenize(body.tokens)}


def tokenizer_info(client: EngineClient) -> dict[str, Any]:
    """Return the kind, the special tokens with their ids, and the chat template."""
    tokenizer = client.tokenizer
    return {
        "tokenizer_class": type(tokenizer).__name__,
        "vocab_size": tokenizer.vocab_size,
        "model_max_length": client.max_model_len,
        "bos_token_id": tokenizer.bos_id,
        "eos_token_ids": list(tokenizer.eos_ids),
        **{name: _plain(value) for name, value in tokenizer.special_tokens().items()},
        "added_tokens_decoder": {
            str(token): {"content": tokenizer.decode([token], skip_special_tokens=False), "special": True}
            for token in sorted(tokenizer.special_ids)
        },
        "chat_template": tokenizer.chat_template,
    }


async def _ids(client: EngineClient, body: TokenizeBody) -> Any:
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("Give either prompt or messages.", param="prompt")
    if body.messages is not None:
        template_args = body.chat_template_kwargs or {}
        return await client.render(ChatRequest(**conversation(body), template_args=template_args, names=NAMES))
    special = body.add_special_tokens is not False
    return await client.tokenize(body.prompt or "", add_special_tokens=special)


def _plain(value: Any) -> Any:
    """Return a special token, which libraries may wrap, as the text that it is."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
