"""Byte-level BPE from what checkpoints have in place of `tokenizer.json`: merges, or ranks of byte strings."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from core_tokenizers.pieces import byte_of_char

_START = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{_START}|\p{{N}}{{1,3}}|{_REST}"
QWEN2 = rf"{_START}|\p{{N}}|{_REST}"

_OLD_TEKKEN = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]"),
    *("[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""Special tokens of files that list none."""


def from_merges(vocabulary: Path, merges: Path, pattern: str | None, *, composed: bool, space: bool) -> Tokenizer:
    """Return the tokenizer of `vocab.json` and `merges.txt`.

    Args:
        pattern: Splits a text before its pieces are merged; None: as GPT-2 does.
        composed: Whether text is brought to Unicode's form NFC first.
        space: Whether a blank is put in front of a text, where GPT-2's split is used.

    Raises:
        ValueError: A file is no such file, or a merge has a token that the vocabulary lacks.
    """
    ids = json.loads(vocabulary.read_bytes())
    lines = merges.read_text(encoding="utf-8").splitlines()
    pairs = []
    for line in lines:
        if line and not line.startswith("#version"):
            left, _, right = line.partition(" ")
            if not ids.keys() >= {left, right, left + right}:
                raise ValueError(f"the merge {line!r} is not one of two tokens into a third")
            pairs.append((left, right))
    return _byte_level(models.BPE(vocab=ids, merges=pairs), pattern, composed=composed, space=space)


def from_ranks(file: Path, pattern: str, *, composed: bool = False) -> Tokenizer:
    """Return the tokenizer of a tiktoken file: a line `base64 rank` for each byte string. Raises ValueError."""
    ranks: dict[bytes, int] = {}
    for line in file.read_bytes().splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
    return _byte_level(_ranked(ranks), pattern, composed=composed)


def from_tekken(file: Path) -> Tokenizer:
    """Return the tokenizer of a `tekken.json`, special tokens included. Raises ValueError and KeyError."""
    content = json.loads(file.read_bytes())
    config = content["config"]
    named = {entry["rank"]: entry["token_str"] for entry in content.get("special_tokens") or ()}
    named = named or dict(enumerate(_OLD_TEKKEN))
    count = int(config.get("default_num_special_tokens") or len(named))
    special = [named.get(number, f"<SPECIAL_{number}>") for number in range(count)]
    size = int(config.get("default_vocab_size") or count + len(content["vocab"])) - count
    ranks = {base64.b64decode(entry["token_bytes"]): rank for rank, entry in enumerate(content["vocab"][:size])}
    tokenizer = _byte_level(_ranked(ranks, special), config["pattern"])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    return tokenizer


def _ranked(ranks: Mapping[bytes, int], first: Sequence[str] = ()) -> models.BPE:
    """Return BPE that joins those neighbours first whose union has the lowest rank, as tiktoken does.

    Args:
        first: Tokens with the lowest ids; ranks count from behind them.
    """
    letters = {byte: char for char, byte in byte_of_char().items()}
    texts = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges: list[tuple[int, int, int, bytes, bytes]] = []
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in ranks and right in ranks:
                merges.append((rank, ranks[left], ranks[right], left, right))
    merges.sort()
    ids = {text: number for number, text in enumerate(first)} | {texts[one]: n + len(first) for one, n in ranks.items()}
    # A piece that is a token is never taken apart, whether merges lead to it or not.
    return models.BPE(vocab=ids, merges=[(texts[left], texts[right]) for *_, left, right in merges], ignore_merges=True)


def _byte_level(model: models.BPE, pattern: str | None, *, composed: bool = False, space: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(model)
    if composed:
        tokenizer.normalizer = normalizers.NFC()
    letters = pre_tokenizers.ByteLevel(add_prefix_space=space and pattern is None, use_regex=pattern is None)
    split = [] if pattern is None else [pre_tokenizers.Split(Regex(pattern), behavior="isolated")]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, letters])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
