"""Requests made ready beside the event loop, where that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.frontend.batching import TextBatcher
from core.frontend.conversation import Conversation
from core.frontend.inputs import Prepared, unicode_checked
from core.frontend.model import FrontModel
from core.frontend.prompts import Cut, split_prompt, truncating
from core.frontend.request import GenerationRequest, spelling


class AsyncPreparer:
    """`FrontModel.prepare` and `chat_ids` for many tasks at once; their texts are tokenised together."""

    def __init__(self, model: FrontModel) -> None:
        self._model = model
        self._batcher = TextBatcher(self._encode_batch)

    async def prepare(self, asked: GenerationRequest) -> Prepared:
        """Return a request as it is before plugins see it. Raises `RequestError`."""
        prompt: Any = asked.prompt
        if isinstance(prompt, Conversation):
            return await asyncio.to_thread(self._model.prepare, asked)
        with spelling(asked.names):
            given = split_prompt(truncating(prompt, asked.truncation))
        if given.ids is not None or given.text is None:
            return self._model.prepare(asked)
        with spelling(asked.names):
            [text] = self._model.inputs.readable(given.text, given.truncation)
            [ids] = await self._encode([text], "prompt", add_special_tokens=given.special)
        ready = {"prompt_token_ids": ids, "prompt": given.text, "truncation": given.truncation}
        return self._model.prepare(replace(asked, prompt=ready, truncation=None))

    async def chat_ids(self, chat: Conversation, cut: Cut | None = None) -> list[int]:
        """Return a conversation's token ids. The template runs before the first wait. Raises `RequestError`."""
        texts, special = self._model.chat_texts(chat, cut), chat.add_special_tokens
        found = await self._encode(texts[:special], "messages")
        found += await self._encode(texts[special:], "messages", add_special_tokens=False)
        return self._model.joined(found, special, cut)

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises `RequestError` if no tokenization could make it fit."""
        self._model.inputs.check_chars(len(text), "prompt")
        [ids] = await self._encode([text], "prompt", add_special_tokens=add_special_tokens)
        return ids

    async def offsets(self, asked: GenerationRequest, ids: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return where each of a prompt's tokens `ids` stands in its text, as (first, end) in characters.

        Tokens that the tokenizer puts around a text stand at (0, 0). None for token ids, prompts that may be cut, and
        tokenizers that do not tell.

        Raises:
            RequestError: As `prepare`.
        """
        if asked.truncation is not None or getattr(self._model.tokenizer, "offsets", None) is None:
            return None
        places = await asyncio.to_thread(self._offsets, asked)
        if places is None or len(places) == len(ids):
            return places
        return places[1:] if len(places) == len(ids) + 1 else None  # a beginning that would have been doubled

    def _offsets(self, asked: GenerationRequest) -> list[tuple[int, int]] | None:
        chat = asked.conversation
        with spelling(asked.names):
            if chat is None:
                given = split_prompt(asked.prompt)
                texts, special = [given.text or ""], given.special
                if given.ids is not None or given.truncation is not None:
                    return None
            else:
                texts, special = self._model.chat_texts(chat), chat.add_special_tokens
            return self._placed(texts, special)

    def _placed(self, texts: Sequence[str], special: bool) -> list[tuple[int, int]]:
        """Return the places of the pieces' tokens in the whole text."""
        tell: Any = getattr(self._model.tokenizer, "offsets", None)
        with unicode_checked("prompt"):
            found = [*tell(texts[:special]), *tell(texts[special:], add_special_tokens=False)]
        places: list[tuple[int, int]] = []
        start = 0
        for text, offsets in zip(texts, found, strict=True):
            places += [(start + a, start + b) if (a, b) != (0, 0) else (0, 0) for a, b in offsets]
            start += len(text)
        return places

    def close(self) -> None:
        """Let the threads go."""
        self._batcher.close()

    def _encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        return self._model.inputs.tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)

    async def _encode(self, texts: Sequence[str], param: str, *, add_special_tokens: bool = True) -> list[list[int]]:
        with unicode_checked(param):
            return await self._batcher.encode(texts, add_special_tokens=add_special_tokens) if texts else []
