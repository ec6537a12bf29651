"""Prompt forms, limits and refusals."""

from __future__ import annotations

import time
from array import array

import pytest

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import TokenizerExtras
from core.frontend.inputs import InputProcessor
from core.frontend.prompts import prompt_ids
from core.frontend.request import GenerationRequest


@pytest.fixture
def inputs(tokenizer):
    return InputProcessor(tokenizer, vocab_size=300, max_model_len=32)


def prepared(inputs, prompt, **params):
    return inputs.prepare(GenerationRequest(prompt=prompt, params=SamplingParams(**params)))


def refused(call, param, code=None, match=None):
    with pytest.raises(RequestError, match=match) as caught:
        call()
    assert (caught.value.param, caught.value.code, caught.value.status) == (param, code, 400)
    return caught.value


@pytest.mark.covers("REND-01", "REND-02")
def test_every_form_of_a_prompt_gives_the_same_ids(inputs, tokenizer):
    ids = tokenizer.encode("hello end")
    forms = ["hello end", {"prompt": "hello end"}, ids, tuple(ids), {"prompt_token_ids": ids}]
    forms.append(prompt_ids(ids))
    assert [inputs.prompt(form).ids.tolist() for form in forms] == [ids] * 6
    assert [inputs.prompt(form).text for form in forms] == ["hello end", "hello end", None, None, None, None]
    both = inputs.prompt({"prompt": "shown", "prompt_token_ids": ids})
    assert (both.text, both.ids.tolist()) == ("shown", ids)
    many = inputs.prompts(["a", ids, {"prompt": "b"}])
    assert [prompt.ids.tolist() for prompt in many] == [tokenizer.encode("a"), ids, tokenizer.encode("b")]


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [],
        {},
        None,
        7,
        b"bytes",
        1.5,
        [1.0],
        ["a", "b"],
        [True],
        [[1, 2]],
        [None],
        [-1],
        [300],
        [10**30],
        {"prompt": 3},
        {"prompt": None},
        array("q", [1, 2]),  # only int32 is taken as it is
        array("d", [1.0]),
        {"prompt_token_ids": "abc"},
        {"prompt_token_ids": 3},
        {"prompt_embeds": [0.1]},
        {"prompt": "a", "multi_modal_data": {}},
        "\ud800",
        {"a"},
    ],
    ids=repr,
)
@pytest.mark.covers("REND-01", "API-04")
def test_malformed_prompts_are_refused(inputs, prompt):
    refused(lambda: inputs.prompt(prompt), "prompt")


def test_prompt_lengths(inputs):
    assert len(inputs.prompt([5] * 31).ids) == 31
    error = refused(
        lambda: inputs.prompt([5] * 32), "prompt", "context_length_exceeded", "maximum context length is 32"
    )
    assert "32 tokens" in str(error)


@pytest.mark.covers("REND-04")
def test_hopeless_texts_are_refused_before_they_are_tokenised(tokenizer):
    class Recording(TokenizerExtras):
        token = tokenizer.token
        max_token_chars = tokenizer.max_token_chars
        calls = 0

        def encode_batch(self, texts, *, add_special_tokens=True):
            self.calls += 1
            return tokenizer.encode_batch(texts, add_special_tokens=add_special_tokens)

    recording = Recording()
    inputs = InputProcessor(recording, vocab_size=300, max_model_len=32)
    limit = 32 * tokenizer.max_token_chars
    began = time.process_time()
    refused(lambda: inputs.prompt("x" * 10_000_000), "prompt", "context_length_exceeded", "at least")
    refused(lambda: inputs.prompt("x" * (limit + 1)), "prompt", "context_length_exceeded")
    assert recording.calls == 0 and time.process_time() - began < 0.5
    refused(lambda: inputs.prompt("x" * limit), "prompt", "context_length_exceeded", f"{limit} tokens")
    assert recording.calls == 1
    recording.max_token_chars = None  # a tokenizer without a bound is asked
    refused(lambda: inputs.prompt("x" * (limit + 1)), "prompt", "context_length_exceeded", f"{limit + 1} tokens")
    assert recording.calls == 2


def test_long_texts_that_fit_pass(inputs, tokenizer):
    text = "<|im_start|>" * 31
    assert len(text) > 32 and len(inputs.prompt(text).ids) == 31


@pytest.mark.covers("REND-05")
def test_max_tokens(inputs):
    def fit(size, **params):
        return prepared(inputs, [5] * size, **params).params.max_tokens

    assert fit(10, max_tokens=None) == 22
    assert fit(31, max_tokens=None) == 1
    assert fit(10, max_tokens=22) == 22
    refused(lambda: fit(10, max_tokens=23), "max_tokens", "context_length_exceeded", "33 tokens")
    refused(lambda: fit(10, max_tokens=None, min_tokens=23), "min_tokens")


def test_stop_ids(inputs):
    def stop_ids(**params):
        return prepared(inputs, "a", **params).stop_ids

    assert stop_ids() == [0]
    assert stop_ids(stop_token_ids=[7, 0, 7]) == [0, 7]
    assert stop_ids(stop_token_ids=[7], ignore_eos=True) == [7]


@pytest.mark.parametrize(
    ("params", "held"),
    [
        ({}, []),
        ({"min_tokens": 2}, []),  # it is a stop id, which is held back anyhow
        ({"ignore_eos": True}, []),
        ({"ignore_eos": True, "min_tokens": 2}, [0]),
        ({"ignore_eos": True, "min_tokens": 2, "stop_token_ids": [0]}, []),
        ({"ignore_eos": True, "min_tokens": 2, "grammar": {"regex": "a"}}, []),
    ],
    ids=str,
)
def test_ends_that_are_only_held_back(inputs, params, held):
    assert prepared(inputs, "a", **params).held_ids == held


def test_bad_words_become_ids_with_and_without_a_blank(inputs, tokenizer):
    params = inputs.complete(SamplingParams(bad_words=["end", " t"], bad_token_ids=[[9, 9]]))
    expected = [[9, 9], *(tokenizer.encode(text) for text in ("end", " end", "t", " t"))]
    assert params.bad_token_ids == expected
    refused(lambda: inputs.complete(SamplingParams(bad_words=["\ud800"])), "bad_words")


@pytest.mark.covers("API-04")
@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"stop_token_ids": [300]}, "stop_token_ids"),
        ({"allowed_token_ids": [5, -1]}, "allowed_token_ids"),
        ({"allowed_token_ids": ["5"]}, "allowed_token_ids"),
        ({"logit_bias": {300: 1.0}}, "logit_bias"),
        ({"logit_bias": {"5": 1.0}}, "logit_bias"),
        ({"bad_token_ids": [[5, 300]]}, "bad_token_ids"),
        ({"bad_token_ids": [[]]}, "bad_token_ids"),
        ({"stop": ["x"], "detokenize": False}, "stop"),
    ],
    ids=str,
)
def test_parameters_are_held_against_the_vocabulary(inputs, params, param):
    refused(lambda: inputs.complete(SamplingParams(**params)), param)


def test_valid_parameters_are_passed_as_they_are(inputs):
    params = SamplingParams(logit_bias={5: 1.0}, allowed_token_ids=[1, 299], stop_token_ids=[3])
    assert inputs.complete(params) is params


class Framed(TokenizerExtras):
    """A tokenizer that puts a token in front of every text."""

    def __init__(self, inner):
        self._inner, self.max_token_chars, self.token = inner, inner.max_token_chars, inner.token

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def encode_batch(self, texts, *, add_special_tokens=True):
        found = self._inner.encode_batch(texts, add_special_tokens=False)
        return [[7, *ids] for ids in found] if add_special_tokens else found


def test_special_tokens_are_left_out_of_those_texts_that_say_so(tokenizer):
    inputs = InputProcessor(Framed(tokenizer), vocab_size=300, max_model_len=32)
    bare = {"prompt": "a", "add_special_tokens": False}
    a, b = (tokenizer.encode(text, add_special_tokens=False) for text in "ab")
    found = inputs.prompts(["b", bare, [1, 2], {"prompt": "a", "add_special_tokens": True}, bare])
    assert [prompt.ids.tolist() for prompt in found] == [[7, *b], a, [1, 2], [7, *a], a]
    assert found[1].text == "a"
    long = {"prompt": "hello " * 10**6, "add_special_tokens": False}
    started = time.process_time()
    refused(lambda: inputs.prompt(long), "prompt", "context_length_exceeded")
    assert time.process_time() - started < 0.5
