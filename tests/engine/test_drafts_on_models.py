"""Speculative decoding through the whole engine: the tokens are those without a drafter, whatever a request asks."""

from __future__ import annotations

from contextlib import closing

import msgspec
import numpy as np
import pytest
from core_plugin_ngram.drafter import NGramDrafter

from core import LLM
from core.api.errors import CoreError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.tinymodels import tiny_llama

EOS = 2
REPEATED = [5, 9, 14, 3, 77, 8] * 4
ASKED = {
    "greedy": {"temperature": 0.0, "logprobs": 2},
    "seeded": {"temperature": 1.0, "seed": 7, "top_p": 0.9, "logprobs": 2},
    "penalties": {"temperature": 0.0, "repetition_penalty": 1.3, "presence_penalty": 0.7, "frequency_penalty": 0.4},
    "bad words": {"temperature": 1.0, "seed": 1, "bad_token_ids": [[40, 41], [12]], "logit_bias": {40: 4.0, 41: 4.0}},
    "minimum": {"temperature": 1.0, "seed": 2, "min_tokens": 12, "stop_token_ids": list(range(3, 60))},
    "stop": {"temperature": 0.0, "stop_token_ids": list(range(3, 30))},
    "grammar": {"temperature": 1.0, "seed": 3, "grammar": {"regex": "[0-9]{9}-[a-c]{9}"}},
    "repeats": {"temperature": 0.0, "logit_bias": {3: 40.0, 9: 41.0}, "frequency_penalty": 1.5},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


def opened(model, depth=1, num_blocks=64, **select):
    options = Options(
        model=ModelOptions(model=model, dtype="float32", max_model_len=96),
        kv=KVOptions(num_blocks=num_blocks, block_size=16),
        runtime=RuntimeOptions(threads=1),
        scheduler=SchedulerOptions(overlap_depth=depth),
        select=SelectOptions(structured_output="llguidance", **select),
    )
    return closing(open_sync(resolve(options).config))


def answers(engine, names, tokens=24, stop_ids=(EOS,)):
    """Return by name the tokens of all requests at once, the log-probability of each, and why it ended."""
    for handle, name in enumerate(names):
        params = SamplingParams(max_tokens=tokens, **ASKED[name])
        prompt = np.array(REPEATED[handle % 3 :], "<i4").tobytes()
        stops = [*params.stop_token_ids, *stop_ids]
        engine.send(Add(handle=handle, prompt=prompt, params=params, stop_ids=stops))
    texts, scores, ends = {name: [] for name in names}, {name: [] for name in names}, {}
    while found := engine.step():
        for outputs in found:
            handles = np.frombuffer(outputs.handles, "<i8").tolist()
            for i, (handle, token) in enumerate(zip(handles, np.frombuffer(outputs.tokens, "<i4").tolist())):
                texts[names[handle]].append(token)
                if i in outputs.logprobs:
                    scores[names[handle]].append(outputs.logprobs[i].values[0])
            ends |= {names[end.handle]: (end.reason, end.error) for end in outputs.finished}
    return texts, scores, ends


@pytest.fixture(scope="module")
def plain(model):
    with opened(model) as engine:
        return answers(engine, list(ASKED))


@pytest.mark.covers("SPEC-01", "SPEC-06", "GRAM-02")
@pytest.mark.parametrize("depth", [0, 1, 4])
def test_a_drafter_changes_no_token_and_no_end(model, plain, depth):
    texts, scores, ends = plain
    with opened(model, depth, drafter="ngram") as engine:
        drafted = answers(engine, list(ASKED))
        stats = engine._core.stages.stats()["ngram"]
    assert drafted[0] == texts and drafted[2] == ends
    for name, expected in scores.items():
        assert drafted[1][name] == pytest.approx(expected, abs=1e-4)
    assert 0 < stats["accepted_tokens"] <= stats["draft_tokens"] <= 4 * stats["drafts"]
    assert sum(stats["accepted_by_position"]) == stats["accepted_tokens"]


@pytest.mark.covers("SPEC-01")
def test_a_worker_in_a_process_of_its_own_drafts_alike(model, plain):
    with opened(model, drafter="ngram", executor="subprocess") as engine:
        drafted = answers(engine, list(ASKED))
        assert engine._core.stages.stats()["ngram"]["accepted_tokens"] > 0
    assert drafted[0] == plain[0] and drafted[2] == plain[2]


@pytest.mark.covers("SPEC-01")
def test_preemption_and_shared_prefixes_change_nothing(model):
    """Twelve blocks are fewer than three requests need: they take turns, and find each other's prefixes."""
    names = ["greedy", "seeded", "repeats"]
    with opened(model) as engine:
        expected = answers(engine, names, tokens=60, stop_ids=())
    with opened(model, num_blocks=13, drafter="ngram") as engine:
        drafted = answers(engine, names, tokens=60, stop_ids=())
        assert engine._core.scheduler.preemptions > 0
    assert drafted[0] == expected[0] and drafted[2] == expected[2]


@pytest.mark.covers("SPEC-01")
@pytest.mark.parametrize(
    ("method", "broken"),
    [
        ("admit", lambda self, row, prompt: 1 // 0),
        ("propose", lambda self, rows, known, tokens, out: 1 // 0),
        ("propose", lambda self, rows, known, tokens, out: out.fill(2**30) or np.full(len(rows), out.shape[1])),
        ("propose", lambda self, rows, known, tokens, out: tokens.fill(0)),
        ("propose", lambda self, rows, known, tokens, out: np.full(len(rows), 99)),
    ],
)
def test_a_drafter_that_fails_is_switched_off_and_no_request_fails(model, plain, monkeypatch, caplog, method, broken):
    monkeypatch.setattr(NGramDrafter, method, broken)
    with opened(model, drafter="ngram") as engine:
        for _ in range(3):
            texts, _, ends = answers(engine, list(ASKED))
            assert texts == plain[0] and ends == plain[2]
        (faults,) = [one for one in engine._core.faults if one.planned.name == "ngram"]
        assert faults.off and faults.count >= 3
        assert engine._core.stages.stats()["ngram"]["draft_tokens"] == 0
    assert [record for record in caplog.records if "CORE-P162" in record.message and "ngram" in record.getMessage()]


def test_a_model_that_pools_has_no_use_for_a_drafter(model):
    pools = ModelOptions(model=model, dtype="float32", runner="pooling", convert="embed")
    with pytest.raises(CoreError, match="the model gives vectors, no tokens") as caught:
        resolve(Options(model=pools, select=SelectOptions(drafter="ngram")))
    assert caught.value.code == "CORE-P201"


@pytest.mark.covers("SPEC-01")
@pytest.mark.parametrize("include", [False, True])
def test_stop_texts_inside_drafts_cut_the_same_text(model, include):
    """Several tokens of a sequence come in one message; nothing behind a stop text is taken in."""
    options = {"dtype": "float32", "num_blocks": 64, "threads": 1, "structured_output": "none"}
    texts = []
    for drafter in ({}, {"drafter": "ngram", "draft_tokens": 6}):
        with LLM(model, **options, **drafter) as llm:
            free = SamplingParams(max_tokens=24, logit_bias=ASKED["repeats"]["logit_bias"], temperature=0.0)
            whole = llm.generate([REPEATED], free)[0].outputs[0].text
            params = msgspec.structs.replace(free, stop=[whole[6:9]], include_stop_str_in_output=include, n=2)
            texts.append([whole, *[(one.text, one.token_ids, one.finish_reason) for one in asked(llm, params)]])
            if drafter:
                assert llm.call("participant_stats")["ngram"]["accepted_tokens"] > 0
    assert texts[0] == texts[1] and texts[0][1][2] == "stop"


def asked(llm, params):
    return llm.generate([REPEATED], params)[0].outputs
