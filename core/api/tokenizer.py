"""Tokenizers: what the front end asks of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    """

    vocab_size: int
    eos_ids: tuple[int, ...]
    bos_id: int | None
    chat_template: str | None
    special_ids: frozenset[int]

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def token(self, token_id: int) -> str:
        """Return the text of one id alone, for log-probability listings."""
        ...

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TokenStream: ...

    def special_tokens(self) -> dict[str, Any]:
        """Return the named special tokens (`bos_token`, `eos_token`, ...) that chat templates read."""
        ...
