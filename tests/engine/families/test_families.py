"""Every family: logits and greedy tokens of a tiny random checkpoint are those of its reference, however it is run."""

from __future__ import annotations

import re
from contextlib import closing

import numpy as np
import pytest
import torch

from core.api.errors import EngineError, PluginError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options, SelectOptions
from core.engine.client import open_sync
from core.engine.messages import Add
from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.families import logits_of

BLOCK, NEW, CLOSE = 16, 8, 1e-3
RNG = np.random.default_rng(5)
SHARED = RNG.integers(3, 300, 37).tolist()
PROMPTS = [[*SHARED, 7, 8, 9], RNG.integers(3, 300, 21).tolist(), [*SHARED, 9, 10]]
SHORT = [RNG.integers(3, 300, BLOCK - 2 - i).tolist() for i in range(3)]
"""Each soon needs a second block."""

ROOMY, LONGEST = 200, 64
TOP = 20


def opened(directory, impl=None, *, blocks=ROOMY, depth=1, chunk=None, backend=None):
    options = Options(
        model=ModelOptions(model=str(directory), dtype="float32", max_model_len=LONGEST),
        kv=KVOptions(num_blocks=blocks, block_size=BLOCK, state_interval=BLOCK),
        runtime=RuntimeOptions(threads=1),
        scheduler=SchedulerOptions(overlap_depth=depth, max_chunk=chunk, max_num_seqs=16),
        select=SelectOptions(attention_backend=backend, model_impl=impl),
    )
    return closing(open_sync(resolve(options).config))


def scarce(directory, **options):
    """Yield engines with the fewest blocks that hold one request of the longest length, and then more of them."""
    for blocks in range(LONGEST // BLOCK + 1, ROOMY):
        try:
            engine = opened(directory, blocks=blocks, **options)
        except EngineError as error:
            assert error.code == "CORE-E120"
        else:
            with engine as opening:
                yield opening


def run(engine, prompts, scored=None):
    """Return the greedy answers to all prompts at once, and the log-probabilities of the scored prompts' tokens."""
    texts, scores = {handle: [] for handle in range(len(prompts))}, {}
    for handle, prompt in enumerate(prompts):
        params = SamplingParams(max_tokens=NEW, temperature=0.0, prompt_logprobs=scored)
        engine.send(Add(handle=handle, prompt=np.array(prompt, "<i4").tobytes(), params=params, stop_ids=[]))
    while found := engine.step():
        for outputs in found:
            for end in outputs.finished:
                assert end.reason == "length", end
            tokens = np.frombuffer(outputs.tokens, "<i4").tolist()
            for handle, token in zip(np.frombuffer(outputs.handles, "<i8").tolist(), tokens, strict=True):
                texts[handle].append(token)
            for handle, positions in outputs.prompt_logprobs.items():
                scores.setdefault(handle, []).extend(positions)
    engine._core.scheduler.check()
    return [texts[handle] for handle in range(len(prompts))], scores


@pytest.fixture(scope="module")
def expected(made):
    """What the reference answers, one prompt at a time."""
    return answered(made.model, PROMPTS)


def answered(model, prompts):
    answers = []
    for prompt in prompts:
        tokens = list(prompt)
        for _ in range(NEW):
            tokens.append(int(logits_of(model, tokens)[-1].argmax()))
        answers.append(tokens[len(prompt) :])
    return answers


@pytest.mark.covers("MODEL-04")
@pytest.mark.each_architecture
def test_logits_and_tokens_are_those_of_the_reference(made, expected):
    due = logits_of(made.model, PROMPTS[0]).log_softmax(-1)
    assert due.exp().max() < 0.999  # where one token is certain, nothing is shown
    with opened(made.directory, made.row.model_impl) as engine:
        tokens, scores = run(engine, PROMPTS, TOP)
        assert tokens == expected
        for row, position in zip(due, scores[0], strict=False):
            torch.testing.assert_close(
                torch.tensor(position.values), row[torch.tensor(position.ids)], atol=CLOSE, rtol=CLOSE
            )
        assert len(scores[0]) == len(PROMPTS[0]) - 1
        assert run(engine, PROMPTS)[0] == expected  # and with what the first round left in the prefix cache
        assert run(engine, [PROMPTS[i % 3] for i in range(16)])[0] == [expected[i % 3] for i in range(16)]
        assert engine._core.cache.hits >= 16 * BLOCK


@pytest.mark.covers("MODEL-04")
@pytest.mark.exhaustive
@pytest.mark.parametrize(("chunk", "depth"), [(7, 2), (1, 0), (64, 1)])
def test_tokens_in_chunks(made, expected, chunk, depth):
    with opened(made.directory, made.row.model_impl, depth=depth, chunk=chunk) as engine:
        assert run(engine, PROMPTS)[0] == expected


@pytest.mark.covers("MODEL-04")
@pytest.mark.parametrize(("chunk", "depth"), [(7, 2), pytest.param(None, 0, marks=pytest.mark.exhaustive)])
def test_tokens_of_preempted_requests(made, chunk, depth):
    due = answered(made.model, SHORT) * 4
    # Where layers give blocks back, the fewest are enough for one request at a time alone.
    for engine in scarce(made.directory, impl=made.row.model_impl, chunk=chunk, depth=depth):
        assert run(engine, SHORT * 4)[0] == due
        if engine._core.scheduler.preemptions:
            return
    raise AssertionError("nobody was preempted")


@pytest.mark.covers("MODEL-04")
def test_the_decode_step_is_a_program_without_torch(row, tmp_path):
    directory = row.write(tmp_path / "model", **row.native)
    if row.lacks:
        with pytest.raises(PluginError, match=f"CORE-P201 .*'cpu_native'.* lacks {row.lacks}"):
            opened(directory, row.model_impl, backend="cpu_native")
    with opened(directory, row.model_impl, backend=None if row.lacks else "cpu_native") as engine:
        if row.lacks:
            assert engine.ready.facts["attention"] == "torch_sdpa"
            assert engine.ready.facts["program"] == "none: the attention backend is not cpu_native"
        elif isinstance(row.programs, str):
            assert re.fullmatch(f"none: .*{row.programs}.*", engine.ready.facts["program"])
        elif row.programs:
            assert re.fullmatch(r"\d+ calls", engine.ready.facts["program"])
        elif row.model_impl is None:
            assert "torch: " in engine.ready.facts["program"]
        else:
            assert "program" not in engine.ready.facts
            assert engine.ready.facts["graphs"].startswith("none: ")
