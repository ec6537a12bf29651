"""The kit's tokenizer, which knows every byte."""

from __future__ import annotations

from pathlib import Path

from core.api.tokenizer import Tokenizer
from core_testing.conformance.subject import Subject
from core_testing.tinymodels import tiny_tokenizer
from core_tokenizers import tokenizer_from_directory


def tokenizer_folder(subject: Subject) -> Path:
    """Return the folder of its files, written once in a run."""
    return subject.shared.once(("tokenizer",), lambda: tiny_tokenizer(subject.folder()))


def tokenizer_of(subject: Subject) -> Tokenizer:
    """Return the tokenizer, loaded once in a run."""
    return subject.shared.once(("loaded",), lambda: tokenizer_from_directory(tokenizer_folder(subject)))
