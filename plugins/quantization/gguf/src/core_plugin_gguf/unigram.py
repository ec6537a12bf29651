"""Tokenizers that take the pieces of the greatest sum of scores: PLaMo's (`plamo2`) and SentencePiece's (`t5`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguf.constants import TokenType
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from core_plugin_gguf.faults import bad_tokenizer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core_plugin_gguf.vocabulary import Vocabulary

_SPACE = "\u2581"
_DIGITS = 10**4
_DEAREST = -(1000 * _DIGITS - 10)
"""The library takes 10 off the lowest score for a character that no piece has."""


def plamo(vocabulary: Vocabulary, ids: Mapping[str, int]) -> Tokenizer:
    """The pieces whose scores, to four digits, have the greatest sum; a character that no piece has costs 1,000.

    Whole numbers keep sums exact. Tokens that are no text of their own are as dear as a character can be.
    """
    spelled = set(vocabulary.of_type(TokenType.NORMAL, TokenType.USER_DEFINED))
    pieces = [
        (token, float(max(round(score * _DIGITS), _DEAREST)) if number in spelled else float(_DEAREST))
        for number, (token, score) in enumerate(zip(vocabulary.tokens, vocabulary.scores, strict=True))
    ]
    unknown = vocabulary.named.get("unk_token_id", 0)
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=unknown, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def sentencepiece(vocabulary: Vocabulary, ids: Mapping[str, int]) -> Tokenizer:
    """The pieces whose scores have the greatest sum, of text that the file's table of characters has normalised.

    XLM-RoBERTa's, for instance: words begin with a mark in the place of a space. Neighbours that no piece has are one
    unknown token.
    """
    pieces = [(token, float(score)) for token, score in zip(vocabulary.tokens, vocabulary.scores, strict=True)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=vocabulary.named["unk_token_id"], byte_fallback=False))
    steps = [] if not vocabulary.characters else [_table(vocabulary)]
    scheme = "always" if vocabulary.add_space else "never"
    if vocabulary.squeezes and vocabulary.add_space:
        marks = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme=scheme)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), marks])
    else:
        if vocabulary.squeezes:
            steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Strip()]
        split = vocabulary.squeezes
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme=scheme, split=split)
    if steps:
        tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Metaspace(replacement=_SPACE, prepend_scheme=scheme)
    return tokenizer


def _table(vocabulary: Vocabulary) -> normalizers.Normalizer:
    try:
        return normalizers.Precompiled(vocabulary.characters)
    except Exception as error:
        raise bad_tokenizer(vocabulary.path, f"its table of characters cannot be read ({error})") from error
