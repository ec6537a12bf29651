"""Incremental detokenization: amortised constant work per token, and never half a character.

Both streams keep one promise: the texts they return, joined, are what decoding prompt and output at once gives after
the prompt's text.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence

import tokenizers

from core_tokenizers.pieces import is_byte_token

_PROMPT_TOKENS = 8
"""Prompt tokens that give context."""
_CHAR_TOKENS = 4
"""Most tokens that a character is spread over."""


class ByteStream:
    """For byte-level tokenizers: the tokens' bytes through an incremental UTF-8 decoder.

    Args:
        token_bytes: Each token's bytes; None outside the vocabulary.
        token_texts: Their reading, None where a token is no whole characters.
        skip: Tokens without a text.
    """

    __slots__ = (
        "_bytes",
        "_decoder",
        "_inside",
        "_skip",
        "_texts",
    )

    def __init__(
        self,
        token_bytes: Mapping[int, bytes | None],
        token_texts: Mapping[int, str | None],
        prompt_ids: Sequence[int],
        skip: frozenset[int],
    ) -> None:
        self._bytes, self._texts, self._skip = token_bytes, token_texts, skip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._inside = False  # a character
        for token_id in prompt_ids[-_PROMPT_TOKENS:]:
            self.step(token_id)  # leaves only what a prompt that ends inside a character lacks

    def step(self, token_id: int) -> str:
        """Return the text that this token completes."""
        if token_id in self._skip:
            return ""
        if not self._inside:
            text = self._texts[token_id]
            if text is not None:
                return text
        text = self._decoder.decode(self._bytes[token_id] or b"")
        self._inside = bool(self._decoder.getstate()[0])
        return text

    def flush(self) -> str:
        """Return U+FFFD if the sequence ended inside a character."""
        return self._decoder.decode(b"", True)


class WindowStream:
    """For every other tokenizer: decodes a short window and returns what is new in it.

    The window is what was returned last (decoders treat the first token of a text in their own way, so that some
    token must stand in front) and what is pending. A run of byte tokens is pending as a whole until it ends: decoders
    turn every byte of a run into U+FFFD if the run as a whole is not UTF-8.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, prompt_ids: Sequence[int], skip: frozenset[int], *, byte_fallback: bool
    ) -> None:
        self._backend = backend
        self._skip = skip
        self._byte_fallback = byte_fallback
        self._context: list[int] = self._suffix(prompt_ids)
        self._seen = self._decode(self._context)
        self._pending: list[int] = []

    def step(self, token_id: int) -> str:
        """Return the text that this token completes."""
        text = None if token_id in self._skip else self._text(token_id)
        if not text:
            return ""
        self._pending.append(token_id)
        if self._byte_fallback and is_byte_token(text):
            return ""
        return self._take(final=False)

    def flush(self) -> str:
        """Return what is pending."""
        return self._take(final=True) if self._pending else ""

    def _take(self, *, final: bool) -> str:
        text = self._decode(self._context + self._pending)
        if text.endswith("\ufffd") and len(self._pending) < _CHAR_TOKENS and not final:
            return ""
        # Only a prompt that ends inside a character can make the text in front change.
        start = len(self._seen) if text.startswith(self._seen) else _common(text, self._seen)
        self._context, self._pending = self._pending, []
        self._seen = self._decode(self._context)
        return text[start:]

    def _decode(self, ids: list[int]) -> str:
        text: str = self._backend.decode(ids, skip_special_tokens=False)
        return text

    def _text(self, token_id: int) -> str | None:
        text: str | None = self._backend.id_to_token(token_id) if token_id >= 0 else None
        return text

    def _suffix(self, prompt_ids: Sequence[int]) -> list[int]:
        """Return the last prompt tokens that have a text, from before a run of byte tokens on.

        A run at the prompt's end that is complete stays out: bad bytes after it must not spoil what is settled.
        """
        found: list[int] = []
        tail = bytearray()
        for token_id in reversed(prompt_ids):
            text = None if token_id in self._skip else self._text(token_id)
            if not text:
                continue
            is_byte = self._byte_fallback and is_byte_token(text)
            if is_byte and len(tail) == len(found):
                tail.insert(0, int(text[3:5], 16))
            found.append(token_id)
            if len(found) >= _PROMPT_TOKENS and not is_byte:
                break
        settled = len(tail) if len(tail) < len(found) and _is_utf8(tail) else 0
        return found[settled:][::-1]


def _is_utf8(raw: bytes | bytearray) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _common(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    return next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))
