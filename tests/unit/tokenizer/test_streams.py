"""Incremental detokenization against decoding everything at once."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FAMILIES = ["byte_level", "sentencepiece_bpe", "metaspace_unigram", "word_piece"]
PROMPTS = ["", "hello", "The fox", "你好", "hello 🙂", " "]


def streamed(tokenizer, prompt_ids, ids, skip=True):
    stream = tokenizer.stream(prompt_ids, skip_special_tokens=skip)
    return [stream.step(token) for token in ids] + [stream.flush()]


@pytest.mark.covers("REND-06")
@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_tokens_after_any_prompt_equal_whole_decode(families, family, data):
    tokenizer = families[family]
    # -1 and ids past the vocabulary have no text: padding rows of the output layer may be sampled
    ids = data.draw(st.lists(st.integers(-1, tokenizer.vocab_size + 3), max_size=40))
    # A prompt that ends in byte tokens is the one exception: see test_bad_bytes_leave_the_prompt_alone
    prompts = [text for text in PROMPTS if family != "sentencepiece_bpe" or text.isascii()]
    prompt = tokenizer.encode(data.draw(st.sampled_from(prompts)))
    skip = data.draw(st.booleans())
    known = [token for token in ids if 0 <= token < tokenizer.vocab_size]
    whole = tokenizer.decode(prompt + known, skip_special_tokens=skip)
    front = tokenizer.decode(prompt, skip_special_tokens=skip)
    assert front + "".join(streamed(tokenizer, prompt, ids, skip)) == whole


@pytest.mark.parametrize("family", FAMILIES)
@given(text=st.text(alphabet="ab the你好🙂é\n.", max_size=60))
@settings(max_examples=60, deadline=None)
def test_text_never_shows_half_a_character(families, family, text):
    tokenizer = families[family]
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = streamed(tokenizer, [], ids)
    assert "".join(pieces) == tokenizer.decode(ids)
    assert not any("\ufffd" in piece for piece in pieces)


@given(st.binary(max_size=24))
@settings(max_examples=200, deadline=None)
def test_byte_fallback_bytes_equal_whole_decode(families, raw):
    tokenizer = families["sentencepiece_bpe"]
    first = tokenizer._backend.token_to_id("<0x00>")
    lo = tokenizer._backend.token_to_id("lo")
    ids = [lo if byte == 0x41 else first + byte for byte in raw]
    prompt = tokenizer.encode("the")
    assert tokenizer.decode(prompt) + "".join(streamed(tokenizer, prompt, ids)) == tokenizer.decode(prompt + ids)


@given(st.binary(max_size=24))
@settings(max_examples=200, deadline=None)
def test_byte_level_bytes_equal_whole_decode(families, raw):
    tokenizer = families["byte_level"]
    single = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids}
    ids = [single[bytes([byte])] for byte in raw]
    assert "".join(streamed(tokenizer, [], ids)) == raw.decode("utf-8", "replace") == tokenizer.decode(ids)


def test_characters_come_when_they_are_complete(families):
    tokenizer = families["byte_level"]
    single = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids}
    stream = tokenizer.stream([])
    pieces = [stream.step(single[bytes([byte])]) for byte in "a🙂b".encode()]
    assert pieces == ["a", "", "", "", "🙂", "b"]
    assert [stream.step(single[b"\xf0"]), stream.step(single[b"z"])] == ["", "\ufffdz"]
    assert stream.step(single[b"\xe4"]) == "" and stream.flush() == "\ufffd"


def test_a_prompt_that_ends_inside_a_character_is_completed(families):
    tokenizer = families["byte_level"]
    single = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size) if i not in tokenizer.special_ids}
    head, tail = [single[bytes([byte])] for byte in "🙂".encode()[:2]], [single[bytes([b])] for b in "🙂".encode()[2:]]
    assert "".join(streamed(tokenizer, head, tail)) == "🙂"
    fallback = families["sentencepiece_bpe"]
    first = fallback._backend.token_to_id("<0x00>")
    ids = [first + byte for byte in "🙂".encode()]
    assert "".join(streamed(fallback, ids[:2], ids[2:])) == "🙂"


def test_bad_bytes_leave_the_prompt_alone(families):
    tokenizer = families["sentencepiece_bpe"]
    first, the = tokenizer._backend.token_to_id("<0x00>"), tokenizer._backend.token_to_id("▁the")
    for prompt in ("hello 你好", "你好", "🙂" * 20):
        ids = tokenizer.encode(prompt)
        assert "".join(streamed(tokenizer, ids, [first + 0xFF, the])) == "\ufffd the"
        assert "".join(streamed(tokenizer, ids, [the])) == " the"
        assert "".join(streamed(tokenizer, ids, [first + byte for byte in "é".encode()])) == "é"


def test_leading_space_follows_the_prompt(families):
    tokenizer = families["sentencepiece_bpe"]
    the = tokenizer._backend.token_to_id("▁the")
    assert "".join(streamed(tokenizer, [], [the, the])) == "the the"
    assert "".join(streamed(tokenizer, tokenizer.encode("lo"), [the, the])) == " the the"


def test_special_tokens_are_skipped_or_shown(families):
    tokenizer = families["byte_level"]
    ids = tokenizer.encode("a<|im_end|>b", add_special_tokens=False)
    assert "".join(streamed(tokenizer, [], ids)) == "ab"
    assert "".join(streamed(tokenizer, [], ids, skip=False)) == "a<|im_end|>b"


@pytest.mark.parametrize("family", ["byte_level", "sentencepiece_bpe"])
def test_work_per_token_does_not_grow(families, family):
    tokenizer = families[family]
    backend = tokenizer._backend
    bad = backend.token_to_id("<0xFF>") if family == "sentencepiece_bpe" else None
    good = tokenizer.encode("the", add_special_tokens=False)
    ids = (good + ([bad, bad] if bad is not None else [])) * 10_000
    stream = tokenizer.stream(good * 10_000)
    began = time.process_time()
    for token in ids:
        stream.step(token)
    assert time.process_time() - began < 10  # quadratic work would take minutes
