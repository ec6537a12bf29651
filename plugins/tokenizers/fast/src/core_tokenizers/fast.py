"""Tokenizers of the `tokenizers` library behind `core.api.tokenizer.Tokenizer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from core.api.tokenizer import TokenizerExtras, TokenStream
from core_tokenizers.fitted import FittedText, fit_texts
from core_tokenizers.limits import max_token_chars
from core_tokenizers.pieces import DecoderKind, Known, byte_level_bytes, decoder_kind, piece_bytes, replacements
from core_tokenizers.streams import ByteStream, WindowStream

PORTION_CHARS = 2**18
"""Characters that are tokenised together: until their ids are read, the library holds some 70 bytes for each."""


def _portions(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts in portions; one that is longer is a portion of its own."""
    start = chars = 0
    for place, text in enumerate(texts):
        if chars and chars + len(text) > PORTION_CHARS:
            yield texts[start:place]
            start, chars = place, 0
        chars += len(text)
    yield texts[start:]


class FastTokenizer(TokenizerExtras):
    """A `tokenizers.Tokenizer` with the facts that serving needs. Safe to use from several threads.

    Args:
        backend: Owned from here on: its truncation and padding are switched off.
        special: Named special tokens by text, as chat templates read them.
        chat_template: Jinja source, or None.
        eos_ids: Ids that end a generation; doubles are dropped.
        response_template: How the checkpoint describes the format of messages, or None.
        chat_templates: Jinja sources of further templates by name (`tool_use`, `rag`).
    """

    can_fit = True

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special: Mapping[str, str | list[str]],
        chat_template: str | None,
        eos_ids: Sequence[int],
        response_template: Mapping[str, Any] | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._special = dict(special)
        self._kind = decoder_kind(backend)
        self._bytes = Known(self._read_bytes)
        self._texts = Known(self._read_text)
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)
        self.eos_ids = tuple(dict.fromkeys(int(token) for token in eos_ids))
        self.chat_template = chat_template
        self.response_template = response_template
        self.chat_templates = dict(chat_templates or {})
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(token_id for token_id, token in added.items() if token.special)
        bos = self._special.get("bos_token")
        self.bos_id: int | None = backend.token_to_id(bos) if isinstance(bos, str) else None

    @classmethod
    def from_directory(cls, path: str | Path) -> FastTokenizer:
        """Read `tokenizer.json` and its companions (Hugging Face's layout).

        Raises:
            CheckpointError: CORE-M110 a file is missing, CORE-M111 a file cannot be read.
        """
        from core_tokenizers.directory import read_directory

        files = read_directory(Path(path))
        return cls(
            files.backend,
            special=files.special,
            chat_template=files.chat_template,
            eos_ids=files.eos_ids,
            response_template=files.response_template,
            chat_templates=files.chat_templates,
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`, with special tokens in front and behind as the tokenizer defines them.

        Raises:
            UnicodeEncodeError: The text holds lone surrogates.
        """
        return self.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Return the ids of each text."""
        return [ids for part in _portions(texts) for ids in self._encoded(part, add_special_tokens)]

    def _encoded(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        try:
            batch = self._backend.encode_batch_fast(list(texts), add_special_tokens=special)
        except TypeError:
            for text in texts:
                text.encode()  # says which character the library could not take
            raise
        return [encoding.ids for encoding in batch]

    def offsets(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[tuple[int, int]]]:
        """Return where each token of each text begins and ends, in characters; (0, 0) for those put around it."""
        batch = self._backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.offsets for encoding in batch]

    def fit(self, texts: Sequence[tuple[str, str | None]], limit: int | None = None) -> list[FittedText]:
        """Return the ids of texts and of pairs, with special tokens, each cut to `limit` tokens if it has more.

        Cutting takes from the end of the longer text and leaves the special tokens.

        Raises:
            UnicodeEncodeError: A text holds lone surrogates.
            ValueError: `limit` leaves no room for any text.
        """
        return fit_texts(self._backend, texts, limit)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of a whole sequence; ids outside the vocabulary have none."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def token(self, token_id: int) -> str:
        """Return the text of one id alone, as it reads in the middle of a text (a leading space is kept)."""
        if self._kind is DecoderKind.BYTES:
            return (self.token_bytes(token_id) or b"").decode("utf-8", "replace")
        stream = self.stream(self._anchor, skip_special_tokens=False)
        return stream.step(token_id) + stream.flush()

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TokenStream:
        """Return the incremental detokenization of what follows `prompt_ids`."""
        skip = self.special_ids if skip_special_tokens else frozenset()
        if self._kind is DecoderKind.BYTES:
            return ByteStream(self._bytes, self._texts, prompt_ids, skip)
        return WindowStream(self._backend, prompt_ids, skip, byte_fallback=self._kind is DecoderKind.BYTE_FALLBACK)

    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes that a byte-level tokenizer's id stands for; None outside the vocabulary."""
        return self._bytes[token_id]

    def piece(self, token_id: int) -> bytes | None:
        """Return the bytes that an id adds in the middle of a text; None outside the vocabulary."""
        if self._kind is DecoderKind.BYTES:
            return self.token_bytes(token_id)
        text = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if text is None or self._replacements is None:
            return None if text is None else self.token(token_id).encode()
        return piece_bytes(text, self._replacements)

    def special_tokens(self) -> dict[str, Any]:
        """Return the named special tokens by text."""
        return dict(self._special)

    @cached_property
    def special_texts(self) -> tuple[str, ...]:
        """Texts that are read as special tokens wherever they stand."""
        return tuple(token.content for token in self._backend.get_added_tokens_decoder().values() if token.special)

    @cached_property
    def added_texts(self) -> tuple[str, ...]:
        """Texts of the tokens that were added to the vocabulary, special or not."""
        return tuple(token.content for token in self._backend.get_added_tokens_decoder().values())

    @cached_property
    def max_token_chars(self) -> int | None:
        """Most characters of text that one token can stand for; None where there is no bound (see `limits`)."""
        return max_token_chars(self._backend)

    def _read_bytes(self, token_id: int) -> bytes | None:
        text = self._backend.id_to_token(token_id) if token_id >= 0 else None
        return None if text is None else byte_level_bytes(text)

    def _read_text(self, token_id: int) -> str | None:
        try:
            return (self._bytes[token_id] or b"").decode()
        except UnicodeDecodeError:
            return None

    @cached_property
    def _replacements(self) -> list[tuple[str, str]] | None:
        return replacements(self._backend)

    @cached_property
    def _anchor(self) -> list[int]:
        return self.encode("a", add_special_tokens=False)
