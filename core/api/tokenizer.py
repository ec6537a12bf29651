"""Tokenizers: what the front end asks of one."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TokenStream(Protocol):
    """Incremental detokenization of one sequence."""

    def step(self, token_id: int) -> str:
        """Return the text that this token completes; empty while a character is still half."""
        ...

    def flush(self) -> str:
        """Return what is left when the sequence ends in the middle of a character."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back.

    Attributes:
        vocab_size: Number of ids, added tokens included.
        eos_ids: Ids that end a generation.
        bos_id: Id put in front of a plain prompt, if the tokenizer adds one.
        chat_template: Jinja source, or None.
        special_ids: Ids of special tokens, left out of the text when `skip_special_tokens`.
        response_template: How the checkpoint describes the format of messages, or None.
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    bos_id: int | None
    chat_template: str | None
    special_ids: frozenset[int]
    response_template: Mapping[str, Any] | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text, with what the tokenizer puts around a prompt if `add_special_tokens`."""
        ...

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Return what `encode` gives for each text."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of token ids."""
        ...

    def token(self, token_id: int) -> str:
        """Return the text of one id alone, for log-probability listings."""
        ...

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TokenStream:
        """Return the detokenizer of what follows a prompt."""
        ...

    def special_tokens(self) -> dict[str, Any]:
        """Return the named special tokens (`bos_token`, `eos_token`, ...) that chat templates read."""
        ...


class FittedText(Protocol):
    """A text, or a pair of texts, as one prompt.

    Attributes:
        ids: Its token ids, special tokens included.
        second: Position of the first token that belongs to the second text; 0 if there is none.
    """

    @property
    def ids(self) -> list[int]: ...

    @property
    def second(self) -> int: ...


class TokenizerExtras:
    """Optional abilities of a tokenizer beyond `Tokenizer`: it derives from this class, and overrides what it knows.

    Of a tokenizer that does not derive from it, what stands here holds.

    Attributes:
        special_ids: The tokenizer's own.
        can_fit: Whether `fit` can be called.
    """

    special_ids: frozenset[int]
    can_fit: bool = False

    @abstractmethod
    def token(self, token_id: int) -> str:
        """Return the text of one id alone; see `Tokenizer`."""

    @cached_property
    def chat_templates(self) -> Mapping[str, str]:
        """Jinja sources of further chat templates by name (`tool_use`, `rag`)."""
        return {}

    @cached_property
    def special_texts(self) -> Sequence[str]:
        """Texts that are read as special tokens wherever they stand."""
        return [self.token(token_id) for token_id in self.special_ids]

    @cached_property
    def added_texts(self) -> Sequence[str]:
        """Texts of the tokens that were added to the vocabulary, special or not."""
        return ()

    @cached_property
    def max_token_chars(self) -> int | None:
        """Most characters of text that one token can stand for; None where there is no bound."""
        return None

    def piece(self, token_id: int) -> bytes | None:
        """Return the bytes that an id adds in the middle of a text; None outside the vocabulary."""
        return self.token(token_id).encode("utf-8", "replace")

    def offsets(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[tuple[int, int]]] | None:
        """Return where each token of each text begins and ends, in characters; None if that is not known.

        Tokens that are put around a text stand at (0, 0).
        """
        return None

    def fit(self, texts: Sequence[tuple[str, str | None]], limit: int | None = None) -> Sequence[FittedText]:
        """Return the ids of texts and of pairs, each cut to `limit` tokens if it has more; special tokens stay.

        Raises:
            UnicodeEncodeError: A text holds lone surrogates.
            ValueError: `limit` leaves no room for any text.
        """
        raise NotImplementedError("a tokenizer whose can_fit is true has this method")


class _Untold(TokenizerExtras):
    """The extras of a tokenizer that tells none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def special_ids(self) -> frozenset[int]:  # type: ignore[override]
        return self._tokenizer.special_ids

    def token(self, token_id: int) -> str:
        """Ask the tokenizer."""
        return self._tokenizer.token(token_id)


def extras_of(tokenizer: Tokenizer) -> TokenizerExtras:
    """Return what a tokenizer tells beyond the protocol, or what holds of one that tells nothing."""
    return tokenizer if isinstance(tokenizer, TokenizerExtras) else _Untold(tokenizer)


def token_bytes(tokenizer: Tokenizer, token_id: int) -> bytes | None:
    """Return the bytes that one id adds in the middle of a text; None outside the vocabulary.

    Bytes of half a character stay as they are. A special token has those of its own text.
    """
    return extras_of(tokenizer).piece(token_id)


def token_table(tokenizer: Tokenizer) -> list[bytes | None]:
    """Return the bytes that each id adds in the middle of a text, `vocab_size` entries; None for special tokens.

    Bytes of half a character stay as they are, so that the entries of a sequence joined are the bytes of its text.
    """
    special = tokenizer.special_ids
    return [None if i in special else token_bytes(tokenizer, i) for i in range(tokenizer.vocab_size)]
