"""What a tokenizer tells beyond the protocol: declared by its base class, never guessed."""

from __future__ import annotations

from tokenizers import Tokenizer, models

from core.api import TokenizerExtras, token_bytes
from core.api.tokenizer import extras_of
from core.selection.no_tokenizer import NoTokenizer
from core_tokenizers import fast_tokenizer


class Plain:
    """A plugin's tokenizer that knows the protocol only; what it has by chance is not asked for."""

    vocab_size, special_ids = 3, frozenset({0})
    max_token_chars = 1

    def token(self, token_id):
        return "abc"[token_id]

    def piece(self, token_id):
        raise AssertionError("nobody has said that this is that method")


class Telling(Plain, TokenizerExtras):
    chat_templates = {"rag": "{{ x }}"}  # noqa: RUF012 - a fact of the class

    def piece(self, token_id):
        return b"\xff"


def test_a_tokenizer_of_the_protocol_alone_tells_nothing_more():
    extras = extras_of(Plain())
    assert (extras.chat_templates, extras.added_texts, extras.max_token_chars) == ({}, (), None)
    assert extras.special_texts == ["a"] and not extras.can_fit
    assert extras.offsets(["abc"]) is None
    assert token_bytes(Plain(), 1) == b"b"


def test_one_that_derives_is_asked_itself():
    telling = Telling()
    assert extras_of(telling) is telling
    assert telling.chat_templates == {"rag": "{{ x }}"} and telling.max_token_chars == 1
    assert telling.added_texts == () and telling.offsets([]) is None  # the others have their defaults
    assert token_bytes(telling, 1) == b"\xff"


def test_those_of_core_derive():
    backend = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    made = fast_tokenizer(backend, special={}, chat_template=None, eos_ids=(), chat_templates={"rag": "x"})
    for one in (made, NoTokenizer(3)):
        assert extras_of(one) is one
    assert extras_of(made).can_fit and extras_of(made).chat_templates == {"rag": "x"}
    assert extras_of(NoTokenizer(3)).max_token_chars is None
