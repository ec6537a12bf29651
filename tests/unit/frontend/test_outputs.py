"""Output processing: tokens to text, stops, log-probabilities and finish reasons."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core.frontend.outputs as outputs_module
from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.engine.messages import Finished, Logprobs, Outputs, Started
from core.frontend.inputs import InputProcessor
from core.frontend.outputs import OutputProcessor
from core.frontend.request import GenerationRequest


@pytest.fixture(scope="session")
def prepare(tokenizer):
    inputs = InputProcessor(tokenizer, vocab_size=300, max_model_len=400)

    def prepared(prompt="hi", *, request=None, **params):
        chosen = SamplingParams(**{"max_tokens": 200, **params})
        return inputs.prepare(GenerationRequest(prompt=prompt, params=chosen, **(request or {})))

    return prepared


def outputs_of(pairs, **fields):
    handles = np.array([handle for handle, _ in pairs], dtype="<i8").tobytes()
    return Outputs(handles=handles, tokens=np.array([token for _, token in pairs], dtype="<i4").tobytes(), **fields)


def feed(processor, handle, tokens, *, step=1, reason="stop", take=None):
    """Deliver tokens `step` at a time, as speculative decoding would; the last ones with the end."""
    aborts = []
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        finished = [Finished(handle, reason)] if start + step >= len(tokens) else []
        aborts += processor.process(outputs_of([(handle, token) for token in part], finished=finished)).aborts
        if take is not None:
            take()
    return aborts


TEXT = st.text(alphabet="ab the你🙂\nend", max_size=30)
STOPS = st.lists(st.sampled_from(["end", "the e", "🙂", "ab", "a你", "\n\n", "b the"]), max_size=3, unique=True)


@pytest.mark.covers("REND-06")
@given(
    text=TEXT, stop=STOPS, step=st.integers(1, 4), gaps=st.integers(1, 5), include=st.booleans(), low=st.integers(0, 5)
)
@settings(max_examples=200, deadline=None)
def test_streaming_equals_not_streaming(tokenizer, prepare, text, stop, step, gaps, include, low):
    """Deltas joined, the last cumulative output and the plain search agree for every chunking and every reader."""
    ids = [*tokenizer.encode(text, add_special_tokens=False), 0]
    results = []
    for delta, chunk, pause in ((False, 1, 10**9), (True, step, gaps), (True, 1, 1), (False, step, 1)):
        processor = OutputProcessor(tokenizer)
        request, (add,) = processor.add(prepare(stop=stop, include_stop_str_in_output=include, min_tokens=low))
        taken = []

        def take(request=request, taken=taken, delta=delta, pause=pause, seen=[0]):  # noqa: B006
            seen[0] += 1
            if seen[0] % pause == 0:
                taken.append(request.take(delta=delta))

        feed(processor, add.handle, ids, step=chunk, take=take)
        taken.append(request.take(delta=delta))
        parts = [output.outputs[0] for output in taken if output.outputs]
        text_out = "".join(part.text for part in parts) if delta else parts[-1].text
        ids_out = [token for part in parts for token in part.token_ids] if delta else parts[-1].token_ids
        results.append((text_out, ids_out, parts[-1].finish_reason, parts[-1].stop_reason))
        assert taken[-1].finished and len(processor) == 0
    assert all(result == results[0] for result in results)
    if low == 0 and not any(s in text for s in stop):
        assert results[0] == (text, ids, "stop", None)


def test_a_stop_text_across_tokens_is_cut_and_aborts(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare(stop=["o w"]))
    ids = tokenizer.encode("hello world", add_special_tokens=False)
    seen = []
    aborts = feed(processor, add.handle, ids, take=lambda: seen.append(request.take(delta=True)))
    completion = [output.outputs[0] for output in seen if output.outputs][-1]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", "o w")
    assert "".join(part.text for output in seen for part in output.outputs) == "hell"
    assert aborts == [add.handle]
    assert add.params.stop == [] and add.params.n == 1


def test_a_stop_in_the_last_token_wins_over_length_and_needs_no_abort(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare(stop=["end"]))
    assert feed(processor, add.handle, tokenizer.encode("the end"), reason="length") == []
    completion = request.take(delta=False).outputs[0]
    assert (completion.text, completion.finish_reason, completion.stop_reason) == ("the ", "stop", "end")


@pytest.mark.parametrize(("include", "text"), [(False, "hi"), (True, "hi!")])
def test_a_stop_token_is_in_the_ids_but_not_in_the_text(tokenizer, prepare, include, text):
    bang = tokenizer.encode("!")[0]
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare(stop_token_ids=[bang], include_stop_str_in_output=include))
    ids = tokenizer.encode("hi!")
    for token in ids[:-1]:
        processor.process(outputs_of([(add.handle, token)]))
    processor.process(outputs_of([(add.handle, bang)], finished=[Finished(add.handle, "stop", bang)]))
    completion = request.take(delta=False).outputs[0]
    assert (completion.text, completion.token_ids, completion.stop_reason) == (text, ids, bang)


def test_min_tokens_holds_for_stop_texts(tokenizer, prepare):
    ids = tokenizer.encode("ab ab ab", add_special_tokens=False)
    for low, text in ((0, ""), (2, "ab "), (len(ids) - 1, "ab ab "), (len(ids), "ab ab ab")):
        processor = OutputProcessor(tokenizer)
        request, (add,) = processor.add(prepare(stop=["ab"], min_tokens=low))
        feed(processor, add.handle, ids, reason="length")
        assert request.take(delta=False).outputs[0].text == text


def test_half_characters_wait_and_are_flushed_at_the_end(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare())
    ids = tokenizer.encode("a🙂", add_special_tokens=False)
    pieces = []
    feed(processor, add.handle, ids[:-1], reason="length", take=lambda: pieces.append(request.take(delta=True)))
    assert [output.outputs[0].text for output in pieces] == ["a", "", "", "\ufffd"]


def test_without_detokenization_there_are_only_ids(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare(detokenize=False, logprobs=0))
    scores = {0: Logprobs([9], [-0.25], 1)}
    processor.process(outputs_of([(add.handle, 9)], logprobs=scores, finished=[Finished(add.handle, "length")]))
    completion = request.take(delta=False).outputs[0]
    assert (completion.text, completion.token_ids, completion.logprobs[0][9].decoded_token) == ("", [9], None)


def test_logprobs(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare(logprobs=2, prompt_logprobs=1))
    el, oh = tokenizer.encode("l")[0], tokenizer.encode("o")[0]
    prompt = add.prompt
    processor.process(Outputs(prompt_logprobs={add.handle: [Logprobs([el, oh], [-3.0, -0.5], 9)]}))
    first = {0: Logprobs([el, oh, el], [-2.0, -1.0, -2.0], 2)}
    processor.process(outputs_of([(add.handle, el)], logprobs=first))
    delta = request.take(delta=True)
    assert len(np.frombuffer(prompt, dtype="<i4")) == len(delta.prompt_logprobs) == 2
    assert delta.prompt_logprobs[0] is None
    scored = delta.prompt_logprobs[1]
    assert [(token, one.logprob, one.rank) for token, one in scored.items()] == [(el, -3.0, 9), (oh, -0.5, 1)]
    second = {0: Logprobs([oh, oh, el], [-0.5, -0.5, -4.0], 1)}
    processor.process(outputs_of([(add.handle, oh)], logprobs=second, finished=[Finished(add.handle, "length")]))
    delta = request.take(delta=True)
    assert delta.prompt_logprobs is None  # told once
    completion = delta.outputs[0]
    assert [(t, v.logprob, v.rank, v.decoded_token) for t, v in completion.logprobs[0].items()] == [
        (oh, -0.5, 1, "o"),
        (el, -4.0, 2, "l"),
    ]
    assert completion.cumulative_logprob == -2.5
    whole = request.take(delta=False)
    assert len(whole.prompt_logprobs) == 2 and len(whole.outputs[0].logprobs) == 2
    assert list(whole.outputs[0].logprobs[0]) == [el, oh]


def test_children_of_n(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, adds = processor.add(
        prepare(n=3, seed=2**63 - 1, prompt_logprobs=0, request={"priority": 4, "cache_salt": "x"})
    )
    assert [add.params.seed for add in adds] == [2**63 - 1, -(2**63), -(2**63) + 1]
    assert [add.params.prompt_logprobs for add in adds] == [0, None, None]
    assert {(add.params.n, add.priority, add.cache_salt) for add in adds} == {(1, 4, "x")}
    a, b, c = (add.handle for add in adds)
    x = tokenizer.encode("x")[0]
    processor.process(Outputs(started=[Started(a, 0), Started(b, 16), Started(c, 16)]))
    done = processor.process(outputs_of([(a, x), (c, x)], finished=[Finished(c, "length")]))
    assert list(done.changed.values()) == [request]
    delta = request.take(delta=True)
    assert [(part.index, part.text, part.finish_reason) for part in delta.outputs] == [
        (0, "x", None),
        (2, "x", "length"),
    ]
    assert not delta.finished and delta.num_cached_tokens == 0
    processor.process(outputs_of([], finished=[Finished(a, "length"), Finished(b, "error", None, "broken row")]))
    delta = request.take(delta=True)
    assert [(part.index, part.finish_reason, part.error) for part in delta.outputs] == [
        (0, "length", None),
        (1, "error", "broken row"),
    ]
    assert delta.finished and len(request.take(delta=False).outputs) == 3
    assert list(delta.metrics) == [
        "arrival_time",
        "first_scheduled_time",
        "first_token_time",
        "last_token_time",
        "finished_time",
    ]


def test_a_request_was_scheduled_before_the_engine_said_so(tokenizer, prepare, monkeypatch):
    now = itertools.count(100.0, 10.0)
    monkeypatch.setattr(outputs_module, "time", SimpleNamespace(monotonic=lambda: next(now)))
    processor = OutputProcessor(tokenizer)
    first, (a,) = processor.add(prepare())
    second, (b,) = processor.add(prepare())
    x = tokenizer.encode("x")[0]
    processor.process(outputs_of([(a.handle, x)], started=[Started(a.handle, 0, 4.0), Started(b.handle, 0, 99.0)]))
    assert (first.metrics["first_scheduled_time"], first.metrics["first_token_time"]) == (116.0, 120.0)
    assert second.metrics["first_scheduled_time"] == second.metrics["arrival_time"] == 110.0


def test_unseeded_children_share_their_parameters(tokenizer, prepare):
    _, adds = OutputProcessor(tokenizer).add(prepare(n=4))
    assert len({id(add.params) for add in adds}) == 1


def test_late_and_unknown_handles_are_ignored(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, (add,) = processor.add(prepare())
    assert processor.abort(request) == [add.handle]
    late = outputs_of(
        [(add.handle, 9), (999, 9)],
        finished=[Finished(add.handle, "stop"), Finished(999, "stop")],
        started=[Started(999, 1)],
        prompt_logprobs={999: []},
    )
    done = processor.process(late)
    assert not done.changed and not done.aborts
    completion = request.take(delta=False).outputs[0]
    assert (completion.finish_reason, completion.token_ids) == ("abort", [])
    assert processor.abort(request) == []


def test_request_ids(tokenizer, prepare):
    processor = OutputProcessor(tokenizer)
    request, _ = processor.add(prepare(request={"request_id": "mine"}))
    assert processor.get("mine") is request
    with pytest.raises(RequestError) as caught:
        processor.add(prepare(request={"request_id": "mine"}))
    assert caught.value.param == "request_id"
    processor.abort(request)
    assert processor.get("mine") is None
    assert processor.add(prepare(request={"request_id": "mine"}))[0] is not request


@pytest.mark.parametrize("broken", ["step", "flush"])
def test_a_failure_in_one_request_stays_there(tokenizer, prepare, broken):
    class Broken:
        def step(self, token):
            if broken == "step":
                raise IndexError("no such token")
            return ""

        def flush(self):
            raise IndexError("no such token")

    class Wrapped:
        token = tokenizer.token

        def stream(self, ids, *, skip_special_tokens=True):
            return Broken() if list(ids) == [9] else tokenizer.stream(ids)

    processor = OutputProcessor(Wrapped())
    bad, (first,) = processor.add(prepare([9]))
    good, (second,) = processor.add(prepare("hi"))
    x = tokenizer.encode("x")[0]
    ends = [Finished(second.handle, "length")] + ([Finished(first.handle, "length")] if broken == "flush" else [])
    done = processor.process(outputs_of([(first.handle, x), (second.handle, x)], finished=ends))
    assert done.aborts == ([first.handle] if broken == "step" else [])
    assert good.take(delta=False).outputs[0].text == "x"
    completion = bad.take(delta=False).outputs[0]
    assert completion.finish_reason == "error" and "IndexError" in completion.error
    assert len(processor) == 0


def test_scores_of_a_prompt_that_cannot_be_read_end_their_request_alone(tokenizer, prepare):
    class Wrapped:
        stream = tokenizer.stream

        def token(self, token_id):
            raise IndexError("no such token")

    processor = OutputProcessor(Wrapped())
    bad, (first,) = processor.add(prepare("hi", prompt_logprobs=0))
    good, (second,) = processor.add(prepare("hi"))
    x = tokenizer.encode("x")[0]
    scores = {first.handle: [Logprobs([x], [-3.0], 9)]}
    done = processor.process(outputs_of([(first.handle, x), (second.handle, x)], prompt_logprobs=scores))
    assert done.aborts == [first.handle] and list(done.changed.values()) == [bad, good]
    completion = bad.take(delta=True).outputs[0]
    assert completion.finish_reason == "error" and "IndexError" in completion.error
    assert good.take(delta=True).outputs[0].text == "x" and len(processor) == 1
