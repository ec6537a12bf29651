"""How much text one token can stand for, so that hopelessly long prompts are refused before they are tokenised."""

from __future__ import annotations

import tokenizers

from core_tokenizers.pieces import component_steps

# Steps that never drop or merge characters, with the factor by which they can shorten a text.
_NORMALIZERS = {"NFC": 3, "Replace": 1, "Prepend": 1, "NFD": 1}
_PRE_TOKENIZERS = frozenset({"ByteLevel", "Metaspace", "Digits", "Split", "Punctuation"})


def max_token_chars(backend: tokenizers.Tokenizer) -> int | None:
    """Return the most characters of text that one token can stand for.

    None where no bound holds: unknown characters that merge into one token, normalizers that drop characters, or
    added tokens that swallow the white space around them.
    """
    factor = _shortening(backend)
    if factor is None or not _covers_every_character(backend):
        return None
    if any(token.lstrip or token.rstrip for token in backend.get_added_tokens_decoder().values()):
        return None
    return factor * max(map(len, backend.get_vocab(with_added_tokens=True)), default=1)


def _shortening(backend: tokenizers.Tokenizer) -> int | None:
    factor = 1
    for step in component_steps(backend.normalizer):
        if step["type"] not in _NORMALIZERS:
            return None
        factor *= _NORMALIZERS[step["type"]]
        if step["type"] == "Replace" and not 0 < len(step["pattern"].get("String", "")) <= len(step["content"]):
            return None
    for step in component_steps(backend.pre_tokenizer):
        if step["type"] not in _PRE_TOKENIZERS or step.get("behavior") == "Removed":
            return None
    return factor


def _covers_every_character(backend: tokenizers.Tokenizer) -> bool:
    """Whether every character becomes at least one token of its own bytes."""
    if any(step["type"] == "ByteLevel" for step in component_steps(backend.pre_tokenizer)):
        return True
    return bool(getattr(backend.model, "byte_fallback", False))
