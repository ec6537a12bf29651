"""Requests made ready beside the event loop, where that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from core.api.tokenizer import extras_of
from core.frontend.batching import TextBatcher
from core.frontend.inputs import Prepared, unicode_checked
from core.frontend.model import FrontModel
from core.frontend.prompts import PromptIds, TokenizedPrompt, prompt_ids, split_prompt
from core.frontend.request import GenerationRequest


class AsyncPreparer:
    """`FrontModel.prepare` and `chat_ids` for many tasks at once; their texts are tokenised together.

    `RequestError`s name the rules' own fields; whoever calls has them spelt as the request's front end does.
    """

    def __init__(self, model: FrontModel) -> None:
        self._model = model
        self._batcher = TextBatcher(self._encode_batch)

    async def prepare(self, request: GenerationRequest) -> Prepared:
        """Return a request as it is before plugins see it. Raises `RequestError`."""
        return self._model.inputs.settled(request, await self.tokenized(request))

    async def tokenized(self, request: GenerationRequest) -> TokenizedPrompt:
        """As `FrontModel.tokenized`; what takes its time is done beside the event loop."""
        model = self._model
        if request.rendered_ids is not None:
            return model.tokenized(request)
        if request.conversation is not None:
            return await asyncio.to_thread(model.tokenized, request)
        given = split_prompt(request.prompt, request.truncation)
        ids: Any = given.ids
        if ids is None:
            texts = model.inputs.readable(given.text or "", given.truncation)
            [found] = await self._encode(texts, "prompt", add_special_tokens=given.special)
            ids = prompt_ids(found)
        return model.inputs.read(given, ids, request.params.max_tokens)

    async def chat_ids(self, request: GenerationRequest) -> PromptIds:
        """Return a conversation's token ids. The template runs before the first wait. Raises `RequestError`."""
        chat, cut = request.chat, request.cut
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
        if asked.truncation is not None:
            return None
        places = await asyncio.to_thread(self._offsets, asked)
        if places is None or len(places) == len(ids):
            return places
        return places[1:] if len(places) == len(ids) + 1 else None  # a beginning that would have been doubled

    def _offsets(self, asked: GenerationRequest) -> list[tuple[int, int]] | None:
        chat = asked.conversation
        if chat is None:
            given = split_prompt(asked.prompt)
            texts, special = [given.text or ""], given.special
            if given.ids is not None or given.truncation is not None:
                return None
        else:
            texts, special = self._model.chat_texts(chat), chat.add_special_tokens
        return self._placed(texts, special)

    def _placed(self, texts: Sequence[str], special: bool) -> list[tuple[int, int]] | None:
        """Return the places of the pieces' tokens in the whole text; None if the tokenizer does not tell."""
        tokenizer = extras_of(self._model.tokenizer)
        with unicode_checked("prompt"):
            first = tokenizer.offsets(texts[:special])
            others = tokenizer.offsets(texts[special:], add_special_tokens=False)
        if first is None or others is None:
            return None
        found = [*first, *others]
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
