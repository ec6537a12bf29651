"""The bytes of every token, for both kinds of tokenizer: joined they are the text."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from core.api import token_table
from core_tokenizers import fast_tokenizer
from core_tokenizers.pieces import byte_level_bytes

TEXT = 'Größe 漢字 😀 "x"\n\ttab'


def byte_level():
    vocab = {piece: index for index, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_fallback():
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"Größe", "x", "tab"]
    vocab = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@pytest.mark.covers("GRAM-03")
@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_the_bytes_of_a_sequence_are_those_of_its_text(make):
    backend = make()
    backend.add_special_tokens([AddedToken("<end>", special=True)])
    backend.add_tokens([AddedToken("<note>", special=False, normalized=False)])
    tokenizer = fast_tokenizer(backend, special={}, chat_template=None, eos_ids=())
    table = token_table(tokenizer)
    assert len(table) == tokenizer.vocab_size
    ids = tokenizer.encode(TEXT + "<note>", add_special_tokens=False)
    assert b"".join(table[token] for token in ids) == (TEXT + "<note>").encode()
    (end,) = tokenizer.encode("<end>", add_special_tokens=False)
    assert table[end] is None and tokenizer.piece(end) == b"<end>"
    assert tokenizer.piece(tokenizer.vocab_size) is None and tokenizer.piece(-1) is None


@pytest.mark.covers("GRAM-03")
def test_a_byte_token_is_its_byte_and_a_replacement_character_is_itself():
    backend = byte_fallback()
    backend.add_tokens([AddedToken("\ufffd", special=False, normalized=False)])
    tokenizer = fast_tokenizer(backend, special={}, chat_template=None, eos_ids=())
    table = token_table(tokenizer)
    assert table[backend.token_to_id("<0xE4>")] == b"\xe4"
    assert table[backend.token_to_id("\ufffd")] == "\ufffd".encode()
    assert table[backend.token_to_id("▁")] == b" "


def test_a_decoder_that_does_more_is_asked_for_each_token():
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "play": 1, "##ing": 2}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    tokenizer = fast_tokenizer(backend, special={}, chat_template=None, eos_ids=())
    assert token_table(tokenizer)[1:] == [tokenizer.token(1).encode(), tokenizer.token(2).encode()]


def test_a_tokenizer_of_a_plugin_needs_the_protocol_only():
    class Plain:
        vocab_size, special_ids = 3, frozenset({0})

        def token(self, token_id):
            return "abc"[token_id]

    assert token_table(Plain()) == [None, b"b", b"c"]


def test_the_alphabet_of_bytes():
    assert byte_level_bytes("Ġa") == b" a"
