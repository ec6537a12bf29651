"""Prompts beside requests that are being answered: steps keep to the target, and the prompt is not held up for long."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.api.steps import TopLogprobs
from core.engine.latency import Allowance, LatencyTarget
from core.engine.loop import EngineLoop
from core.engine.step_costs import StepCosts, StepWork
from core_testing.arithmetic import ArithmeticExecutor, generate

TARGET = 0.2
BLOCK = 32
PROMPT = [(3 * i) % 97 for i in range(7000)]


@dataclass(frozen=True)
class Machine:
    """Seconds of a step: those of each part, at least `flat` for the prompts' products, and noise."""

    step: float = 0.015
    decode: float = 0.0005
    token: float = 0.001
    pair: float = 1e-7
    score: float = 0.001
    flat: float = 0.0
    noise: float = 0.0

    def seconds(self, work: StepWork, chance: random.Random) -> float:
        products = max(self.flat, self.token * work.tokens)
        parts = self.decode * work.decodes + self.pair * (work.pairs + work.context) + self.score * work.scores
        return (self.step + products + parts) * chance.uniform(1 - self.noise, 1 + self.noise)


MACHINES = {
    "small model": Machine(token=0.00011, pair=2e-8, score=0.0003),
    "slow processor": Machine(step=0.02, token=0.0012, pair=1.5e-7),
    "slow attention": Machine(step=0.02, token=0.0005, pair=5e-7),
    "products at full speed from 300 tokens": Machine(step=0.004, token=0.0002, pair=2e-9, score=2e-5, flat=0.06),
    "accelerator": Machine(step=0.004, decode=2e-5, token=4e-5, pair=2e-9, score=2e-5, flat=0.015),
    "noise": Machine(step=0.02, token=0.0012, noise=0.05),
}


class TimedExecutor(ArithmeticExecutor):
    """The arithmetic worker, on a clock that a `Machine` moves on with every step.

    Attributes:
        works, seconds: Of every step so far.
    """

    def __init__(self, worker, blocks, machine, scored):
        super().__init__(worker, blocks)
        self.now, self.works, self.seconds = 0.0, [], []
        self.machine, self._scored, self._chance = machine, scored, random.Random(0)
        self._plain, worker.execute = worker.execute, self._execute

    def _execute(self, plan):
        result = self._plain(plan)
        for i, count in enumerate(plan.counts.tolist()):
            if self._scored and count > 1:
                column = np.zeros((count, 2), np.int32)
                result.prompt_logprobs[i] = TopLogprobs(column, column.astype(np.float32), column[:, 0])
        work = StepWork.of(plan, result)
        self.works.append(work)
        self.seconds.append(self.machine.seconds(work, self._chance))
        self.now += self.seconds[-1]
        return result


def beside_streams(harness, machine, *, target=TARGET, scored=False, streams=8, decoded=20, prompt=PROMPT, **options):
    """Let a long prompt arrive beside streams, and run until it has its token.

    Returns:
        The engine, the seconds of every step that ran from its arrival on, and what they ran.
    """
    options = {"blocks": 800, "max_len": 8192, "budget": 1024, "max_chunk": 8192, "soft_budget": True, **options}
    engine = harness(block_size=BLOCK, max_seqs=16, spread=True, latency=target, prefix=False, **options)
    engine.executor = TimedExecutor(engine.worker, options["blocks"], machine, scored)
    engine.loop = EngineLoop(engine.scheduler, engine.executor, engine.depth, lambda: engine.executor.now)
    for i in range(streams):
        engine.add(i, [(i + 5 * j) % 97 for j in range(16)], max_tokens=1500)
    while streams and len(engine.outputs[streams - 1]) < decoded:
        engine.advance()
    begin = len(engine.executor.works) + engine.loop.inflight
    engine.add(100, prompt, max_tokens=1, prompt_logprobs=1 if scored else None)
    while 100 not in engine.finished:
        engine.advance()
    return engine, engine.executor.seconds[begin:], engine.executor.works[begin:]


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("name", MACHINES)
def test_gaps_keep_to_the_target_and_the_prompt_waits_little_longer(harness, name, scored):
    _, plain, _ = beside_streams(harness, MACHINES[name], target=0, scored=scored)
    engine, seconds, _ = beside_streams(harness, MACHINES[name], scored=scored)
    assert max(seconds) <= TARGET
    assert sum(seconds) <= 1.3 * sum(plain)
    assert engine.outputs[100] == generate(PROMPT, 1, 97)


@st.composite
def any_machine(draw):
    """Machines of which a decode step takes at most a sixth of the target, and on which a token's products take as
    long as attending to 2,000 tokens at least."""
    token = draw(st.floats(1e-5, 2e-3))
    return Machine(
        step=draw(st.floats(0.001, 0.025)),
        decode=draw(st.floats(1e-6, 1e-3)),
        token=token,
        pair=token * draw(st.floats(1e-5, 0.0005)),
        score=token * draw(st.floats(0.01, 2)),
        flat=draw(st.floats(0, 0.03)),
    )


@settings(max_examples=60, deadline=None)
@given(any_machine(), st.booleans())
@example(
    Machine(step=0.001, decode=1e-05, token=2**-14, pair=2.6972730247881753e-08, score=2**-17, flat=0.0114134), True
)
def test_any_machine_is_learnt(machine, scored):
    """Costs alone, without an engine: whatever a step costs, the chunks that are chosen beside streams fit."""
    latency, chance = LatencyTarget(TARGET, BLOCK), random.Random(0)
    costs = latency._costs
    for work in (StepWork(tokens=16, pairs=136), *[StepWork(decodes=8, context=8 * (16 + i)) for i in range(20)]):
        costs.note(work, machine.seconds(work, chance))
    done, late, steps, total = 0, 0, 0, 0.0
    while done < len(PROMPT):
        allowance = latency.allowance(8, 400)
        count = allowance.fits(done, len(PROMPT) - done, scored=scored)
        assert count >= min(BLOCK, len(PROMPT) - done)
        work = StepWork(decodes=8, context=400).with_prompt(done, count, scored=scored)
        seconds = machine.seconds(work, chance)
        assert seconds <= 1.6 * TARGET or count <= BLOCK
        late += seconds > 1.05 * TARGET and count > BLOCK
        costs.note(work, seconds)
        done, steps, total = done + count, steps + 1, total + seconds
    assert late <= 4
    # After a few steps the time that decoding rows leave is used, where that is more than a block takes.
    usable = TARGET - machine.seconds(StepWork(decodes=8, context=400), chance)
    parts = total - steps * (TARGET - usable)
    assert steps <= 1.5 * parts / usable + 8 or steps == -(-len(PROMPT) // BLOCK)


def test_a_machine_that_slows_down_is_followed(harness):
    engine, _, _ = beside_streams(harness, MACHINES["slow processor"], prompt=PROMPT[:3000])
    engine.executor.machine = replace(MACHINES["slow processor"], step=0.03, token=0.004, pair=4e-7)
    begin = len(engine.executor.seconds)
    engine.add(101, PROMPT[3000:5000], max_tokens=1)
    while 101 not in engine.finished:
        engine.advance()
    late = [seconds > TARGET for seconds in engine.executor.seconds[begin:]]
    assert sum(late) <= 4 and not any(late[8:])


def test_one_slow_step_changes_little(harness):
    costs = StepCosts()
    work = StepWork(decodes=8, context=800).with_prompt(0, 96, scored=False)
    for _ in range(20):
        costs.note(StepWork(decodes=8, context=800), 0.02)
        costs.note(work, 0.12)
    before = costs.seconds(work)
    costs.note(work, 0.8)
    assert costs.seconds(work) < 1.4 * before
    costs.note(work, 0.8)  # the second in a row is no accident
    assert costs.seconds(work) > 0.75


def test_the_same_measurements_give_the_same_costs():
    def fitted():
        costs, chance = StepCosts(), random.Random(3)
        for i in range(200):
            work = StepWork(decodes=i % 9, context=100 * i).with_prompt(i, 32 * (i % 3), scored=i % 2 == 0)
            costs.note(work, chance.uniform(0.01, 0.2))
        return costs.seconds(StepWork(decodes=4, context=400).with_prompt(100, 64, scored=True))

    assert fitted() == fitted()


def test_costs_stay_sound_whatever_is_measured():
    """Steps that take no time or hours, and work of every kind, in any turn."""
    costs, chance = StepCosts(), random.Random(7)
    work = StepWork(decodes=8, context=800).with_prompt(0, 64, scored=True)
    for _ in range(5000):
        count = chance.choice((0, 0, 1, 50, 8000))
        some = StepWork(decodes=chance.choice((0, 1, 1000)), context=chance.choice((0, 10**7)))
        some = some.with_prompt(chance.choice((0, 10**5)), count, scored=chance.random() < 0.5) if count else some
        costs.note(some, chance.choice((0.0, 1e-5, 0.02, 0.2, 4000.0)))
        expected = costs.seconds(work)
        assert 0 < expected < 1e9
        assert costs.within(work, 1.001 * expected) and not costs.within(work, 0.999 * expected)
    for _ in range(30):
        costs.note(work, 0.1)
    assert 0.09 < costs.seconds(work) < 0.13


def test_without_anybody_decoding_steps_are_as_ever(harness):
    _, seconds, works = beside_streams(harness, MACHINES["slow processor"], streams=0)
    assert [work.tokens for work in works] == [1024] * 6 + [856]
    assert max(seconds) > TARGET


def test_nobody_waits_offline(harness):
    engine = harness(latency=TARGET, spread=False)
    assert engine.scheduler.latency is None


def test_prompts_grow_in_blocks(harness):
    """A chunk ends at a block's end where that costs little, else at a multiple of eight tokens."""
    for machine, unit in ((MACHINES["small model"], BLOCK), (MACHINES["slow processor"], 8)):
        _, _, works = beside_streams(harness, machine)
        assert all(work.tokens % unit == 0 for work in works[:-1])


def test_a_prompt_advances_however_slow_the_machine(harness):
    machine = Machine(step=0.5, token=0.05)
    engine, _, works = beside_streams(harness, machine, prompt=PROMPT[:500])
    assert all(work.tokens >= BLOCK for work in works[:-1])
    assert engine.outputs[100] == generate(PROMPT[:500], 1, 97)


def test_scored_positions_shorten_the_chunk(harness):
    machine = MACHINES["slow processor"]
    plain, scored = (beside_streams(harness, machine, scored=flag)[2] for flag in (False, True))
    middle = [np.median([work.tokens for work in works]) for works in (plain, scored)]
    assert middle[1] < 0.7 * middle[0]


def test_before_anything_is_measured_a_prompt_gets_a_block():
    allowance = LatencyTarget(TARGET, BLOCK).allowance(1, 5)
    assert allowance.fits(0, 500, scored=False) == BLOCK
    allowance.spend(0, BLOCK, scored=False)
    assert allowance.fits(0, 500, scored=False) == 0


def test_short_prompts_share_what_there_is(harness):
    machine = MACHINES["slow processor"]
    engine, _, _ = beside_streams(harness, machine, prompt=PROMPT[:500])
    begin = len(engine.executor.seconds)
    for i in range(101, 107):
        engine.add(i, [(i + 7 * j) % 97 for j in range(120)], max_tokens=1)
    while len(engine.finished) < 7:
        engine.advance()
    assert engine.started[-6:] == list(range(101, 107))
    assert max(engine.executor.seconds[begin:]) <= TARGET


def test_a_prompt_that_nearly_fits_is_completed():
    costs = StepCosts()
    for tokens in (0, 32, 64, 128, 256, 512) * 10:
        costs.note(StepWork(decodes=1).with_prompt(0, tokens, scored=False), 0.01 + 0.001 * tokens)
    most = Allowance(costs, StepWork(decodes=1), 0.2, BLOCK)._most(0, 4000, scored=False)
    fits = [Allowance(costs, StepWork(decodes=1), 0.2, BLOCK).fits(0, most + more, scored=False) for more in (8, 64)]
    assert fits[0] == most + 8
    assert most - most // 8 <= fits[1] <= most
