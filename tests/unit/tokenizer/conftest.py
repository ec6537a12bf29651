"""Tiny tokenizers of every family, trained on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from core_tokenizers.fast import FastTokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. " * 3,
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "def main():\n    return {'a': 1}\n\n",
    "naïve café — “quoted” 你好 世界 🙂 hello hello world world",
]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}


def byte_level() -> Tokenizer:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def _byte_fallback_vocab(words: list[str]) -> dict[str, int]:
    tokens = ["<unk>", *SPECIAL, *[f"<0x{byte:02X}>" for byte in range(256)]]
    tokens += [*sorted(set("▁" + "".join(words))), "▁the", "▁he", "lo", "▁▁"]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def sentencepiece_bpe() -> Tokenizer:
    """Llama 2's form: normalizer with a leading blank, byte fallback, fuse, strip."""
    vocab = _byte_fallback_vocab(["abcdefghijklmnopqrstuvwxyz.,"])
    merges = [("l", "o"), ("▁", "▁")]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    backend.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", vocab["<s>"])])
    return backend


def metaspace_unigram() -> Tokenizer:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=200, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def word_piece() -> Tokenizer:
    backend = Tokenizer(models.WordPiece(unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece(cleanup=True)
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=["<unk>", *SPECIAL], show_progress=False)
    backend.train_from_iterator(CORPUS, trainer)
    return backend


FAMILIES = {
    "byte_level": byte_level,
    "sentencepiece_bpe": sentencepiece_bpe,
    "metaspace_unigram": metaspace_unigram,
    "word_piece": word_piece,
}


def wrap(backend: Tokenizer) -> FastTokenizer:
    return FastTokenizer(backend, special=NAMES, chat_template=None, eos_ids=[backend.token_to_id("</s>")])


@pytest.fixture(scope="session")
def families() -> dict[str, FastTokenizer]:
    return {name: wrap(make()) for name, make in FAMILIES.items()}


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    return tmp_path
