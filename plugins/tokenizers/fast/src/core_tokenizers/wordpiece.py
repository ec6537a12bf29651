"""BERT's tokenizer from its list of words (`vocab.txt`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors


def from_words(file: Path, config: Mapping[str, Any], special: Mapping[str, str]) -> Tokenizer:
    """Return the tokenizer of a list of words, one a line.

    Args:
        config: `do_lower_case`, `strip_accents` and `tokenize_chinese_chars` are heeded.
        special: Texts by role: `unk_token`, `cls_token`, `sep_token`, ...

    Raises:
        ValueError: The list lacks one of them.
    """
    ids = {word: number for number, word in enumerate(file.read_text(encoding="utf-8").splitlines())}
    lost = [text for role, text in special.items() if text not in ids and role != "mask_token"]
    if lost:
        raise ValueError(f"it has no token {lost[0]!r}")
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=special["unk_token"], max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        strip_accents=config.get("strip_accents"),
        lowercase=config.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    ends = [(special[role], ids[special[role]]) for role in ("sep_token", "cls_token")]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special.values()])
    return tokenizer
