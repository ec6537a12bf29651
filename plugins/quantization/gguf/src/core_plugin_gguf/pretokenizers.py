"""How byte-level vocabularies split text before merging, by the name in `tokenizer.ggml.pre`.

A split is a fact of the vocabulary: merges were learned inside its pieces. A name that is not listed is refused,
because a wrong split gives plausible, worse tokens without any error.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Regex, normalizers, pre_tokenizers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import PreTokenizer

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_HEAD = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

LLAMA3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
QWEN2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
TEKKEN = rf"{_HEAD}{_UPPER}*{_LOWER}+|{_HEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_SYMBOLS_SLASH}|{_SPACES}"
GPT4O = (
    rf"{_HEAD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_HEAD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{_SYMBOLS_SLASH}|{_SPACES}"
)

QWEN35 = rf"{_CONTRACTIONS}|{_HEAD}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_HAN = r"\p{Han}"
_WORDS_BUT_HAN = tuple(f"{letters[:-1]}&&[^{_HAN}]]" for letters in (_UPPER, _LOWER))
KIMI = (
    rf"[{_HAN}]+|{_HEAD}{_WORDS_BUT_HAN[0]}*{_WORDS_BUT_HAN[1]}+{_CONTRACTIONS}?"
    rf"|{_HEAD}{_WORDS_BUT_HAN[0]}+{_WORDS_BUT_HAN[1]}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
)
BAILING = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_SYMBOLS}|\s*[\r\n]|\s+(?!\S)|\s+"
_CASED = r"[\p{Lu}\p{Ll}\p{Lt}&&[^\u10d0-\u10ff]]"
"""Letters of scripts with two cases, but for Georgian's small ones, which had none when the split was made."""
DEEPSEEK = (
    r"[\r\n]",
    rf"\s?{_CASED}+",
    r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    r"\p{N}",
)
DEEPSEEK3 = (
    r"\p{N}{1,3}",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
)
"""One split after another, each of what those before have left."""

GPT2_NAMES = frozenset(
    {"default", "gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "jais", "gigachat", "modern-bert"}
)
DIGIT_NAMES = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
"""GPT-2's split after every digit was set apart."""
SPLITS: Mapping[str, str | tuple[str, ...]] = {
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "falcon3": LLAMA3,
    "falcon-h1": LLAMA3,
    "lfm2": LLAMA3,
    "smaug-bpe": LLAMA3,
    "dbrx": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "qwen35": QWEN35,
    "megrez": QWEN2,
    "stablelm2": QWEN2,
    "hunyuan": QWEN2,
    "tekken": TEKKEN,
    "gpt-4o": GPT4O,
    "llama4": GPT4O,
    "minimax-m2": GPT4O,
    "glm4": LLAMA3,
    "chatglm-bpe": LLAMA3,
    "grok-2": QWEN2,
    "bailingmoe": BAILING,
    "bailingmoe2": BAILING,
    "deepseek-llm": DEEPSEEK,
    "deepseek-v3": DEEPSEEK3,
    "hunyuan-dense": DEEPSEEK3,
    "kimi-k2": KIMI,
}
WHOLE_WORDS = frozenset({"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "tekken"})
"""Vocabularies in which a piece that is a token is never taken apart, whatever the merges say; they add BOS."""
RANKED = frozenset({"kimi-k2"})
"""Vocabularies that join the neighbours whose union has the lowest id, whatever the merges say; files may have none."""
COMPOSED = frozenset({"qwen2", "deepseek-r1-qwen", "megrez", "qwen35", "modern-bert"})
"""Vocabularies of composed characters: text is brought to Unicode's form NFC first."""
FALCON = "falcon"
"""GPT-2's split between marks of punctuation, and numbers in threes from their beginning."""
NAMES = GPT2_NAMES | DIGIT_NAMES | frozenset(SPLITS) | {FALCON}


def splitter(name: str) -> PreTokenizer:
    """Return the pre-tokenizer `name`, one of `NAMES`; it also turns bytes into the vocabulary's letters."""
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in GPT2_NAMES:
        return gpt2
    if name in DIGIT_NAMES:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2])
    if name == FALCON:
        marks, digits = pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(individual_digits=False)
        return pre_tokenizers.Sequence([marks, gpt2, digits, pre_tokenizers.Split(Regex("[0-9]{3}"), "isolated")])
    given = SPLITS[name]
    steps = (given,) if isinstance(given, str) else given
    splits = [pre_tokenizers.Split(Regex(one), behavior="isolated") for one in steps]
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def normalizer(name: str) -> Normalizer | None:
    """Return what a vocabulary does to text before it is split, or None."""
    return normalizers.NFC() if name in COMPOSED else None
