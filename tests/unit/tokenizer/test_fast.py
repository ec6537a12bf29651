"""The tokenizer wrapper, and reading one from a directory."""

from __future__ import annotations

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer

from core.api.errors import CheckpointError
from core_tokenizers import fast, fast_tokenizer, tokenizer_from_directory
from core_tokenizers.pieces import DecoderKind, byte_level_bytes, decoder_kind, is_byte_token


def test_encode_decode_and_batches(families):
    for tokenizer in families.values():
        ids = tokenizer.encode("the fox", add_special_tokens=False)
        assert tokenizer.encode_batch(["the fox", "a"], add_special_tokens=False)[0] == ids
        assert tokenizer.decode(ids) == "the fox"
    llama = families["sentencepiece_bpe"]
    assert llama.encode("the")[0] == llama.bos_id
    assert llama.encode("the", add_special_tokens=False)[0] != llama.bos_id


def test_facts(families):
    tokenizer = families["byte_level"]
    assert tokenizer.vocab_size == 400
    assert tokenizer.special_ids == {0, 1, 2, 3}
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (0, (1,))
    assert tokenizer.special_tokens() == {"bos_token": "<s>", "eos_token": "</s>"}


def test_kinds(families):
    kinds = {name: decoder_kind(tokenizer._backend) for name, tokenizer in families.items()}
    assert kinds == {
        "byte_level": DecoderKind.BYTES,
        "sentencepiece_bpe": DecoderKind.BYTE_FALLBACK,
        "metaspace_unigram": DecoderKind.TEXT,
        "word_piece": DecoderKind.TEXT,
    }


def test_single_tokens_keep_their_space(families):
    bpe, llama = families["byte_level"], families["sentencepiece_bpe"]
    assert bpe.token(bpe.encode(" the", add_special_tokens=False)[0]).startswith(" ")
    assert llama.token(llama._backend.token_to_id("▁the")) == " the"
    assert llama.token(llama._backend.token_to_id("lo")) == "lo"
    assert llama.token(llama._backend.token_to_id("<0xE4>")) == "\ufffd"
    assert llama.token(llama._backend.token_to_id("</s>")) == "</s>"
    assert bpe.token(10**6) == "" == llama.token(-1)


def test_byte_pieces():
    assert byte_level_bytes("Ġthe") == b" the"
    assert byte_level_bytes("a b") == b"a b"
    assert [is_byte_token(text) for text in ("<0xE4>", "<0xe4>", "<0xG4>", "<0xE4", "abcdef")] == [True, True] + [
        False
    ] * 3


@pytest.mark.covers("REND-04")
def test_longest_token_is_a_bound_only_where_one_holds(families):
    bounded = families["byte_level"].max_token_chars
    for text in ("hello " * 50, "🙂" * 50, "你好" * 50, " " * 200, "<|im_start|>" * 20):
        assert len(text) <= bounded * len(families["byte_level"].encode(text))
    assert families["sentencepiece_bpe"].max_token_chars == len("<|im_start|>")
    assert families["metaspace_unigram"].max_token_chars is None  # unknown characters merge
    assert families["word_piece"].max_token_chars is None  # white space is dropped


def test_truncation_and_padding_of_the_file_are_ignored(model_directory):
    file = model_directory / "tokenizer.json"
    backend = Tokenizer.from_file(str(file))
    backend.enable_truncation(2)
    backend.enable_padding(length=64)
    backend.save(str(file))
    ids = tokenizer_from_directory(model_directory).encode("the quick brown fox")
    assert 2 < len(ids) < 64


def write(path, name, value):
    (path / name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def test_directory_with_companions(model_directory):
    write(model_directory, "special_tokens_map.json", {"bos_token": "ignored", "pad_token": {"content": "<s>"}})
    write(
        model_directory,
        "tokenizer_config.json",
        {
            "bos_token": {"content": "<s>", "lstrip": False},
            "eos_token": "</s>",
            "unk_token": None,
            "add_bos_token": True,
            "additional_special_tokens": ["<|im_start|>", {"content": "<|im_end|>"}],
            "chat_template": "from config",
            "added_tokens_decoder": {
                "0": {"content": "<s>", "special": True},
                "400": {"content": "<tool_call>", "special": False},
                "900": {"content": "<far>", "special": True},
            },
        },
    )
    write(model_directory, "generation_config.json", {"eos_token_id": [1, 3]})
    write(model_directory, "config.json", {"eos_token_id": 77})
    tokenizer = tokenizer_from_directory(model_directory)
    assert tokenizer.special_tokens() == {
        "bos_token": "<s>",
        "pad_token": "<s>",
        "eos_token": "</s>",
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    }
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.chat_template) == (0, (1, 3), "from config")
    assert tokenizer.encode("<tool_call>") == [400]
    assert tokenizer.vocab_size == 401
    write(model_directory, "chat_template.jinja", "from file")
    assert tokenizer_from_directory(model_directory).chat_template == "from file"


def test_directory_alone_and_fallbacks(model_directory):
    bare = tokenizer_from_directory(str(model_directory))
    assert (bare.bos_id, bare.eos_ids, bare.chat_template, bare.special_tokens()) == (None, (), None, {})
    write(model_directory, "config.json", {"eos_token_id": 1})
    named = [{"name": "rag", "template": "no"}, {"name": "default", "template": "yes"}]
    write(model_directory, "tokenizer_config.json", {"chat_template": named})
    tokenizer = tokenizer_from_directory(model_directory)
    assert (tokenizer.eos_ids, tokenizer.chat_template) == ((1,), "yes")


def test_missing_and_broken_files(model_directory, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(CheckpointError) as caught:
        tokenizer_from_directory(empty)
    assert caught.value.code == "CORE-M110" and caught.value.hint and str(empty) in caught.value.message
    for name, content in (("tokenizer_config.json", "{"), ("generation_config.json", "[]"), ("tokenizer.json", "{}")):
        (model_directory / name).write_text(content)
        with pytest.raises(CheckpointError, match=name) as caught:
            tokenizer_from_directory(model_directory)
        assert caught.value.code == "CORE-M111"
        if name != "tokenizer.json":
            (model_directory / name).unlink()


def test_importing_the_api_loads_no_tokenizer_library():
    code = "import sys, core.api, core.api.tokenizer; sys.exit('tokenizers' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_factory(families):
    backend = families["word_piece"]._backend
    tokenizer = fast_tokenizer(backend, special={}, chat_template="x", eos_ids=[2, 2, 3])
    assert (tokenizer.eos_ids, tokenizer.chat_template, tokenizer.bos_id) == ((2, 3), "x", None)


def test_many_texts_are_tokenized_in_portions(monkeypatch):
    """The library holds a multiple of what it reads until the ids are taken."""
    sizes = []

    class Backend:
        def encode_batch_fast(self, texts, *, add_special_tokens):
            sizes.append(len(texts))
            return [SimpleNamespace(ids=[len(text)]) for text in texts]

    monkeypatch.setattr(fast, "PORTION_CHARS", 10)
    tokenizer = SimpleNamespace(_backend=Backend())
    tokenizer._encoded = lambda texts, special: fast.FastTokenizer._encoded(tokenizer, texts, special)
    lengths = [3, 3, 3, 3, 20, 1, 0, 10, 4]
    found = fast.FastTokenizer.encode_batch(tokenizer, ["a" * length for length in lengths])
    assert found == [[length] for length in lengths]
    assert sizes == [3, 1, 1, 2, 1, 1]
