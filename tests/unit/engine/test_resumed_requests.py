"""A request that another engine has begun goes on where that ended, as a preempted one does."""

from __future__ import annotations

import numpy as np
import pytest
from core_plugin_structured.compiling.pool import CompilePool, Compiler, PoolLimits
from core_plugin_structured.engine import StructuredParticipant

from core.api.grammars import Grammar
from core_testing.arithmetic import generate, next_token

VOCAB = 97


@pytest.mark.parametrize("known", [1, 3, 4, 5, 19])
@pytest.mark.parametrize(
    "layout",
    [{"depth": 0}, {}, {"depth": 2}, {"budget": 3, "max_chunk": 3}, {"prefix": False}, {"blocks": 15}],
    ids=["depth 0", "depth 1", "depth 2", "chunks", "no prefix cache", "scarce"],
)
def test_it_goes_on_behind_its_tokens(harness, layout, known):
    prompts = {1: [3, 1, 4, 1, 5], 2: [9, 2, 6], 3: [5, 3, 5, 8, 9, 7, 9, 3, 2]}
    whole = {handle: generate(prompt, 20, VOCAB) for handle, prompt in prompts.items()}
    engine = harness(**layout)
    for handle, prompt in prompts.items():
        engine.add(handle, prompt, max_tokens=20, generated=whole[handle][:known])
    outputs = engine.run()
    assert {handle: whole[handle][:known] + outputs[handle] for handle in whole} == whole
    assert set(engine.finished.values()) == {"length"} and engine.pool.used == 0


def test_what_it_brings_is_found_in_the_prefix_cache(harness):
    prompt, whole = [3, 1, 4, 1, 5], generate([3, 1, 4, 1, 5], 20, VOCAB)
    engine = harness()
    engine.add(1, prompt, max_tokens=16)
    engine.run()
    before = engine.worker.computed_tokens
    engine.add(2, prompt, max_tokens=20, generated=whole[:15])
    assert engine.run()[2] == whole[15:]
    assert engine.worker.computed_tokens - before == 20 - 16 + 4  # four full blocks were there


@pytest.mark.parametrize("stop_at", [6, 12])
def test_its_minimum_and_stop_ids_count_from_the_prompt(harness, stop_at):
    prompt = [3, 1, 4]
    stop = generate(prompt, 20, VOCAB)[stop_at]
    text = list(prompt)
    for place in range(20):
        text.append(
            next_token(np.array(text, np.int32), VOCAB, lambda token, early=place < 10: not early or token != stop)
        )
    whole = text[len(prompt) :]
    engine = harness()
    engine.add(1, prompt, max_tokens=20, min_tokens=10, stop_ids=[stop], generated=whole[:4])
    said = whole[:4] + engine.run()[1]
    end = next((place for place, token in enumerate(whole) if place >= 10 and token == stop), 19)
    assert said == whole[: end + 1]


@pytest.mark.parametrize("count", [4, 5])
def test_one_that_had_all_its_tokens_is_refused(harness, count):
    engine = harness()
    with pytest.raises(ValueError, match=f"{count} tokens were generated before"):
        engine.add(1, [1, 2], max_tokens=4, generated=range(count))
    assert not engine.scheduler.requests


class Matcher:
    """Allows all tokens but one, and notes what it is told."""

    def __init__(self, said):
        self.said = said

    def fill(self, mask):
        mask[:] = -1

    def accept(self, token):
        self.said.append(token)
        return token != 96

    def rollback(self, count): ...

    def is_complete(self):
        return True


@pytest.mark.parametrize("broken", [False, True])
def test_its_grammar_is_told_what_was_said(harness, broken):
    said = []

    class Compiled:
        def matcher(self):
            return Matcher(said)

    pool = CompilePool(
        [Compiler("one", frozenset({"choice"}), lambda kind, value, turn: (Compiled(), 0))], PoolLimits()
    )
    participant = StructuredParticipant(pool, VOCAB, tokenizer=lambda: None)
    engine = harness(participants=(participant,))
    whole = generate([3, 1], 8, VOCAB)
    before = [*whole[:3], 96] if broken else whole[:4]
    engine.add(1, [3, 1], max_tokens=8, generated=before, grammar=Grammar("choice", "x"))
    (job,) = participant._compiling.values()
    assert job.wait(30)
    outputs = engine.run()
    if broken:
        assert (engine.finished, outputs[1]) == ({1: "error"}, [])
        assert "CORE-E160" in engine.errors[1] and "token 96" in engine.errors[1]
    else:
        assert outputs[1] == whole[4:] and said == whole
    participant.close()


def test_positions_of_seeded_draws_count_its_tokens(harness):
    engine, counts = harness(), []
    execute = engine.worker.execute
    engine.worker.execute = lambda plan: (counts.append(int(plan.output_counts[0])), execute(plan))[1]
    engine.add(1, [3, 1], max_tokens=8, generated=generate([3, 1], 5, VOCAB))
    engine.run()
    assert counts == [5, 6, 7]
    assert engine.outputs[1] == np.array(generate([3, 1], 8, VOCAB)[5:]).tolist()
