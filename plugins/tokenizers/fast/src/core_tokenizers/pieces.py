"""Decoding of single tokens, as a tokenizer's decoder does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, TypeVar

import tokenizers

T = TypeVar("T")


class DecoderKind(Enum):
    """How token texts become text."""

    BYTES = auto()
    """Each token is a run of bytes; the text is their UTF-8 reading."""
    BYTE_FALLBACK = auto()
    """Tokens are texts, except that `<0xE4>` stands for a byte."""
    TEXT = auto()
    """Tokens are texts."""


class Known(dict[int, T]):
    """Facts about tokens by id; each is found out when it is asked for first."""

    def __init__(self, read: Callable[[int], T]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, token_id: int) -> T:
        found = self[token_id] = self._read(token_id)
        return found


def decoder_kind(backend: tokenizers.Tokenizer) -> DecoderKind:
    """Classify a tokenizer by its decoder."""
    steps = list(component_steps(backend.decoder))
    names = {step["type"] for step in steps}
    if names in ({"ByteLevel"}, {"ByteLevel", "Fuse"}):
        return DecoderKind.BYTES
    return DecoderKind.BYTE_FALLBACK if "ByteFallback" in names else DecoderKind.TEXT


def component_steps(component: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a decoder, normalizer or pre-tokenizer as data, sequences taken apart."""
    if component is not None:
        yield from _flatten(json.loads(component.__getstate__()))


def _flatten(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if step["type"] != "Sequence":
        yield step
        return
    for key in ("decoders", "normalizers", "pretokenizers"):
        for inner in step.get(key, ()):
            yield from _flatten(inner)


def is_byte_token(text: str) -> bool:
    """Whether a token text is of the form `<0xE4>`."""
    if len(text) != 6 or not text.startswith("<0x") or not text.endswith(">"):
        return False
    return all(char in "0123456789abcdefABCDEF" for char in text[3:5])


def replacements(backend: tokenizers.Tokenizer) -> list[tuple[str, str]] | None:
    """Return what a decoder of texts replaces inside each token; None if it does more than that to a single token."""
    found: list[tuple[str, str]] = []
    for step in component_steps(backend.decoder):
        if step["type"] == "Metaspace":
            found.append((step["replacement"], " "))
        elif step["type"] == "Replace" and "String" in step["pattern"]:
            found.append((step["pattern"]["String"], step["content"]))
        elif step["type"] not in ("ByteFallback", "Fuse", "Strip"):  # a strip is about the ends of the whole text
            return None
    return found


def piece_bytes(text: str, replaced: Sequence[tuple[str, str]]) -> bytes:
    """Return the bytes of a token text in the middle of a text: a byte token's own, or the text after replacements."""
    if is_byte_token(text):
        return bytes([int(text[3:5], 16)])
    for old, new in replaced:
        text = text.replace(old, new)
    return text.encode()


def byte_level_bytes(text: str) -> bytes:
    """Return the bytes behind a byte-level token text; a text outside that alphabet stands for itself."""
    alphabet = byte_of_char()
    try:
        return bytes(alphabet[char] for char in text)
    except KeyError:
        return text.encode()


@cache
def byte_of_char() -> dict[str, int]:
    """Return the alphabet of byte-level BPE: printable Latin-1 as it is, the other bytes from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(rest)}
