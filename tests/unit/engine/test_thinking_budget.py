"""A thought that has used up its budget is ended, whatever the engine does with its request meanwhile."""

from __future__ import annotations

import numpy as np
import pytest
from core_plugin_structured.compiling.pool import CompilePool, PoolLimits
from core_plugin_structured.engine import StructuredParticipant
from core_plugin_structured.thinking import ThoughtLimit, last_place

from core.api.errors import RequestError
from core.api.grammars import Thinking
from core.api.sampling_params import SamplingParams
from core_testing.arithmetic import ArithmeticExecutor, ArithmeticWorker, generate, next_token

VOCAB = 97


class Letters:
    """Token t is the text `t.`; the tags are runs of them."""

    special_ids = frozenset()

    def token(self, token):
        return f"{token}."

    def encode(self, text, *, add_special_tokens=True):
        return [int(part) for part in text.split(".") if part]


class CountingWorker(ArithmeticWorker):
    """Counts the rows that were constrained."""

    masked = 0

    def execute(self, plan, late=None):
        result = super().execute(plan, late)
        self.masked += len(self._allowed)
        return result


@pytest.fixture
def engine(harness):
    def make(**named):
        participant = StructuredParticipant(CompilePool([], PoolLimits()), VOCAB, Letters)
        made = harness(participants=(participant,), **named)
        made.worker = CountingWorker(made.blocks, made.block_size, made.max_seqs, made.max_len, VOCAB)
        made.executor = ArithmeticExecutor(made.worker, made.blocks)
        made.loop.executor = made.executor
        made.loop.time(lambda name, work: work)
        return made

    return make


def expected(prompt, count, thinking, budget):
    """Do token by token what the engine must come to."""
    limit, tokens = ThoughtLimit(thinking, budget, Letters(), np.array(prompt)), list(prompt)
    for _ in range(count):
        if limit.idle:
            token = next_token(np.array(tokens, np.int32), VOCAB)
        else:
            mask = np.zeros(4, np.int32)
            limit.fill(mask)
            (token,) = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
        limit.accept(token)
        tokens.append(token)
    return tokens[len(prompt) :]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("budget", [0, 1, 5])
def test_an_open_thought_ends_after_its_budget(engine, depth, budget):
    made, prompt = engine(depth=depth), [1, 2, 3]
    made.add(1, prompt, max_tokens=12, thinking_token_budget=budget, thinking=Thinking("90.91.", "89.", open=True))
    made.add(2, prompt, max_tokens=12)
    made.run()
    free = generate(prompt, 12, VOCAB)
    assert made.outputs[2] == free
    assert made.outputs[1][: budget + 2] == [*free[:budget], 90, 91]
    after = [*prompt, *free[:budget], 90, 91]
    assert made.outputs[1][budget + 2 :] == generate(after, 10 - budget, VOCAB)
    assert made.worker.masked == 2  # every other step is free


@pytest.mark.parametrize("depth", [0, 2])
def test_preemption_chunks_and_many_sequences_change_nothing(engine, depth):
    made = engine(depth=depth, blocks=14, max_chunk=3, budget=16, max_seqs=4)
    first = generate([7, 8, 9], 3, VOCAB)
    start = f"{first[1]}."  # the model begins to think with its second token
    plans = {}
    for handle in range(1, 9):
        prompt = [handle, 8, 9, *range(handle, handle + 5)] if handle % 2 else [7, 8, 9]
        thinking = Thinking("90.91.92.", start, open=bool(handle % 3))
        budget = handle % 4
        plans[handle] = (prompt, thinking, budget)
        made.add(handle, prompt, max_tokens=14, thinking_token_budget=budget, thinking=thinking)
    made.run()
    assert made.scheduler.preemptions > 0
    for handle, (prompt, thinking, budget) in plans.items():
        assert made.outputs[handle] == expected(prompt, 14, thinking, budget), handle
    assert all(90 in made.outputs[handle] for handle in plans if handle != 3)  # which never thinks


@pytest.mark.parametrize("known", [1, 4, 5, 6, 7, 11])
@pytest.mark.parametrize("open_", [False, True])
def test_a_budget_counts_what_another_engine_generated(engine, open_, known):
    prompt = [7, 8, 9]
    start = f"{generate(prompt, 2, VOCAB)[1]}."  # a thought that is not open begins with the second token
    thinking = Thinking("90.91.92.", start, open=open_)
    whole = expected(prompt, 14, thinking, 4)
    made = engine()
    made.add(1, prompt, max_tokens=14, thinking_token_budget=4, thinking=thinking, generated=whole[:known])
    assert made.run()[1] == whole[known:]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize(
    ("budget", "thinking"), [(12, Thinking("90.91.", "89.", open=True)), (30, Thinking("9999.", "8888."))]
)
def test_a_budget_costs_no_step(engine, depth, budget, thinking):
    free, made = engine(depth=depth), engine(depth=depth)
    free.add(1, [1, 2, 3], max_tokens=40)
    free.run()
    made.add(1, [1, 2, 3], max_tokens=40, thinking_token_budget=budget, thinking=thinking)
    made.run()
    assert made.outputs[1] == expected([1, 2, 3], 40, thinking, budget)
    assert made.loop.settler.totals.steps == free.loop.settler.totals.steps


def test_what_the_prompt_has_thought_counts():
    thinking = Thinking("9.", "5.", open=True)
    left = ThoughtLimit(thinking, 4, Letters(), np.array([5, 9, 1, 5, 2, 2]))
    assert left.idle
    left.accept(1)
    assert left.idle
    left.accept(1)
    assert not left.idle
    assert not ThoughtLimit(thinking, 2, Letters(), np.array([5, 2, 2, 2])).idle  # spent before it began
    assert ThoughtLimit(thinking, 2, Letters(), np.array([1, 1, 1])).idle  # nobody knows where this one began


def test_thoughts_share_a_budget_and_end_by_themselves_too():
    limit = ThoughtLimit(Thinking("9.", "5."), 3, Letters(), np.array([1]))
    for token, idle in ((1, True), (5, True), (1, True), (9, True), (4, True), (5, True), (2, False), (9, True)):
        limit.accept(token)
        assert limit.idle is idle, token
    limit.accept(5)
    assert not limit.idle
    mask = np.zeros(1, np.int32)
    limit.fill(mask)
    assert mask.tolist() == [1 << 9]


@pytest.mark.parametrize(
    ("ids", "part", "place"),
    [([1, 2, 1, 2], [1, 2], 2), ([1, 2], [2, 1], -1), ([1], [1, 2], -1), ([3, 1, 3], [3], 2), ([1], [], -1)],
)
def test_the_last_place(ids, part, place):
    assert last_place(np.array(ids), part) == place


def test_without_the_tokenizer_the_request_is_refused(harness):
    def broken():
        raise OSError("gone")

    made = harness(participants=(StructuredParticipant(CompilePool([], PoolLimits()), VOCAB, broken),))
    made.add(1, [1], max_tokens=2, thinking_token_budget=1, thinking=Thinking("9.", open=True))
    made.add(2, [1], max_tokens=2)
    made.run()
    assert made.finished[1] == "error" and made.finished[2] == "length"
    assert made.errors[1].startswith("CORE-E163") and "gone" in made.errors[1]


def test_the_parameter():
    assert SamplingParams(thinking_token_budget=-1).thinking_token_budget is None
    assert SamplingParams(thinking_token_budget=0).thinking_token_budget == 0
    for wrong in (-2, 1.5, True):
        with pytest.raises(RequestError) as caught:
            SamplingParams(thinking_token_budget=wrong)
        assert caught.value.param == "thinking_token_budget"
