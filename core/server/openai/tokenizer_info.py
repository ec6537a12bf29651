"""`GET /tokenizer_info`: the tokenizer's settings, where the server was told to show them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.server.answers import json_answer
from core.server.errors import ApiError
from core.server.state import ServerState


class TokenizerInfoRoute:
    """Describes the tokenizer."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, request: Request) -> Response:
        """Return the kind, the special tokens with their ids, and the chat template."""
        if not self._state.options.server.tokenizer_info:
            message = "The tokenizer's settings are not shown: start the server with --tokenizer-info."
            raise ApiError(404, message, code="tokenizer_info_off")
        tokenizer = self._state.llm.tokenizer
        info = {
            "tokenizer_class": type(tokenizer).__name__,
            "vocab_size": tokenizer.vocab_size,
            "model_max_length": self._state.llm.max_model_len,
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


def _plain(value: Any) -> Any:
    """Return a special token, which libraries may wrap, as the text that it is."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else str(value)
