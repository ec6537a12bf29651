"""The tokenizer of a model that reads no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api.errors import CheckpointError, RequestError
from core.api.tokenizer import Tokenizer, TokenizerExtras, TokenStream
from core.trim import trim

if TYPE_CHECKING:
    from core.api.weights import CheckpointInfo, CheckpointReader
    from core.config.resolved import EngineConfig

READS_NO_TEXT = "this model has no tokenizer: it reads token ids, and data through an I/O processor"

_MISSING = "CORE-M110"
"""How a reader says that there are no files of a tokenizer."""


class NoTokenizer(TokenizerExtras):
    """Refuses every text; `core.api.tokenizer.Tokenizer` otherwise.

    Args:
        vocab_size: Token ids that the model takes.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.eos_ids: tuple[int, ...] = ()
        self.bos_id: int | None = None
        self.chat_template: str | None = None
        self.special_ids: frozenset[int] = frozenset()
        self.response_template: Mapping[str, Any] | None = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Raises `RequestError`."""
        raise _refusal()

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Raises `RequestError` if there is a text."""
        if texts:
            raise _refusal()
        return []

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Raises `RequestError`."""
        raise _refusal()

    def token(self, token_id: int) -> str:
        """Raises `RequestError`."""
        raise _refusal()

    def stream(self, prompt_ids: Sequence[int], *, skip_special_tokens: bool = True) -> TokenStream:
        """Raises `RequestError`."""
        raise _refusal()

    def special_tokens(self) -> dict[str, Any]:
        """Return nothing: there are none."""
        return {}


def _refusal() -> RequestError:
    return RequestError(READS_NO_TEXT)


def require_tokenizer(checkpoint: CheckpointInfo) -> None:
    """Refuse a model that has no tokenizer, before anything is loaded. Raises `CheckpointError`."""
    if checkpoint.tokenizer_fault:
        raise CheckpointError(_MISSING, f"{checkpoint.tokenizer_fault}.", hint=checkpoint.tokenizer_remedy)


def tokenizer_of(reader: CheckpointReader, config: EngineConfig) -> Tokenizer:
    """Return the model's tokenizer; for a model that gives no tokens and has none, one that refuses every text.

    Raises:
        CheckpointError: Its files cannot be used, or the model generates and has none.
    """
    try:
        return reader.tokenizer(Path(config.checkpoint.path))
    except CheckpointError as error:
        if error.code != _MISSING or config.decodes:
            raise
        return NoTokenizer(config.shape.vocab_size)
    finally:
        trim()  # what a vocabulary is read with is as large as the tokenizer
