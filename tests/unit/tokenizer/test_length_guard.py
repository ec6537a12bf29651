"""The guard before the tokenizer: what it refuses could not have fitted, whatever the tokenizer and the text."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from core.api.errors import RequestError
from core.api.tokenizer import TokenizerExtras
from core.frontend.inputs import InputProcessor
from core.frontend.prompts import Truncation
from core_tokenizers.fast import FastTokenizer

LENGTH = 24
TEXTS = st.one_of(
    st.text(max_size=400),
    st.text(alphabet="你好世界🙂é\u0301 \u3000\t\n", max_size=400),
    st.text(alphabet=" ", max_size=400),
    st.text(alphabet="\u2028\x00\ufeff\u200d", max_size=200),
    st.lists(st.sampled_from(["the quick brown", "hello", "<|im_start|>", "\u1e9b\u0323", "ﬁ"]), max_size=60).map(
        "".join
    ),
)


class Recording(TokenizerExtras):
    """A tokenizer that counts how often it is asked."""

    def __init__(self, tokenizer, **facts):
        self.vocab_size, self.bos_id = tokenizer.vocab_size, tokenizer.bos_id
        self._tokenizer, self.calls, self.longest = tokenizer, 0, 0
        for name, value in facts.items():
            setattr(self, name, value)

    def encode_batch(self, texts, *, add_special_tokens=True):
        self.calls += len(texts)
        self.longest = max([self.longest, *map(len, texts)])
        return self._tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)


def processor(tokenizer, **named):
    return InputProcessor(tokenizer, vocab_size=10_000, max_model_len=LENGTH, **named)


def composing() -> FastTokenizer:
    """NFC shortens texts; one token covers three characters of some."""
    vocab = {char: number for number, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return FastTokenizer(backend, special={}, chat_template=None, eos_ids=[])


@pytest.fixture(scope="module")
def every(families):
    return {**families, "composing": composing()}


@pytest.mark.covers("REND-04")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_what_fits_is_never_refused_unread(every, text):
    for name, tokenizer in every.items():
        ids = tokenizer.encode(text)
        if 0 < len(ids) < LENGTH:
            assert processor(tokenizer).prompt(text).ids.tolist() == ids, name


@pytest.mark.covers("REND-04")
@pytest.mark.parametrize("most", [1, 2, 4])
def test_the_limit_is_exact(families, most):
    recording = Recording(families["byte_level"], max_token_chars=most)
    inputs = processor(recording)
    with pytest.raises(RequestError) as caught:
        inputs.prompt("x" * (LENGTH * most + 1))
    error = caught.value
    assert (error.param, error.code, error.status) == ("prompt", "context_length_exceeded", 400)
    assert str(LENGTH * most + 1) in error.message and str(LENGTH) in error.message and recording.calls == 0
    with pytest.raises(RequestError, match="resulted in"):
        inputs.prompt("\x01" * (LENGTH * most))
    assert recording.calls == 1


@pytest.mark.covers("REND-04")
def test_operators_may_set_the_ratio_or_switch_the_guard_off(families):
    text = "x" * 200
    for ratio, asked in ((None, 0), (3, 0), (50, 1), (0, 1)):
        recording = Recording(families["byte_level"], max_token_chars=2)
        with pytest.raises(RequestError):
            processor(recording, chars_per_token=ratio).prompt(text)
        assert recording.calls == asked, ratio


@pytest.mark.covers("REND-04")
def test_tokenizers_that_tell_no_ratio_are_asked(families):
    recording = Recording(families["byte_level"])
    with pytest.raises(RequestError):
        processor(recording).prompt("x" * 200)
    assert recording.calls == 1
    assert families["metaspace_unigram"].max_token_chars is None  # unknown characters merge
    assert families["word_piece"].max_token_chars is None


@pytest.mark.covers("REND-05")
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_is_cut_off_is_not_tokenised(families, side):
    tokenizer = families["byte_level"]
    text = " ".join(f"word{number}" for number in range(20_000))
    recording = Recording(tokenizer, max_token_chars=tokenizer.max_token_chars)
    ids = processor(recording).prompt({"prompt": text, "truncation": Truncation(tokens=7, side=side)}).ids.tolist()
    whole = tokenizer.encode(text)
    assert ids == (whole[:7] if side == "right" else whole[-7:])
    assert recording.longest < len(text) / 10


@pytest.mark.covers("REND-05")
def test_the_token_that_begins_every_prompt_is_kept(families):
    tokenizer = families["sentencepiece_bpe"]
    text = "hello there " * 20
    whole = tokenizer.encode(text)
    cut = processor(tokenizer).prompt({"prompt": text, "truncation": Truncation(tokens=6)}).ids.tolist()
    assert cut == [whole[0], *whole[-5:]] and whole[0] == tokenizer.bos_id
    bare = {"prompt": text, "add_special_tokens": False, "truncation": Truncation(tokens=6)}
    assert processor(tokenizer).prompt(bare).ids.tolist() == whole[-6:]
