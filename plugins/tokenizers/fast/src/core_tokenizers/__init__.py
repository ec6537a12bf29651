"""Tokenizers of the `tokenizers` library as `core.api.Tokenizer`, and vocabularies that are converted into them.

For weight loaders: what they return as `CheckpointReader.tokenizer`. Importing this module is cheap; the library is
imported by the functions that need it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import tokenizers

    from core.api import Tokenizer


def fast_tokenizer(
    backend: tokenizers.Tokenizer,
    *,
    special: Mapping[str, str | list[str]],
    chat_template: str | None,
    eos_ids: Sequence[int],
    chat_templates: Mapping[str, str] | None = None,
) -> Tokenizer:
    """Return a `Tokenizer` on top of a backend of the `tokenizers` library.

    Args:
        backend: The tokenizer as the checkpoint describes it, added and special tokens included.
        special: Named special tokens (`bos_token`, `eos_token`, ...) by their text, as chat templates read them.
        chat_template: Jinja source, or None.
        eos_ids: Ids that end a generation.
        chat_templates: Jinja sources of further templates by name (`tool_use`, `rag`).
    """
    from core_tokenizers.fast import FastTokenizer

    return FastTokenizer(
        backend, special=special, chat_template=chat_template, chat_templates=chat_templates, eos_ids=eos_ids
    )


def tokenizer_from_directory(path: str | Path) -> Tokenizer:
    """Return the tokenizer of a directory in Hugging Face's layout.

    That is `tokenizer.json` and its companions, or a vocabulary of a known class that is converted: `tokenizer.model`
    (SentencePiece), `tekken.json`, `*.tiktoken`, `vocab.json` and `merges.txt`, `vocab.txt`.

    Raises:
        CheckpointError: A file is missing or cannot be read.
    """
    from core_tokenizers.fast import FastTokenizer

    return FastTokenizer.from_directory(path)


def missing_tokenizer(path: str | Path) -> str:
    """Return what `tokenizer_from_directory` would miss, for `CheckpointInfo.tokenizer_fault`; empty: nothing."""
    from core_tokenizers.vocabularies import fault

    return fault(Path(path))


def tokenizer_remedy(path: str | Path) -> str:
    """Return what a user can do about what `missing_tokenizer` says, for `CheckpointInfo.tokenizer_remedy`."""
    from core_tokenizers.vocabularies import remedy

    return remedy(Path(path)) if missing_tokenizer(path) else ""
