"""Scheduler policies: a total and fixed order, a valid victim, and an engine in which everybody finishes."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from core.api.requests import Caller
from core.api.schedulers import SchedulerPolicy
from core.engine.step_budget import Limits
from core_testing.arithmetic import ArithmeticExecutor, ArithmeticWorker, generate
from core_testing.conformance.outcome import Failed, checks, require
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.engine_driver import EngineDriver

_VOCABULARY = 97
_BLOCK_SIZE = 4
_LIMITS = Limits(max_num_seqs=6, max_num_batched_tokens=24, max_chunk=16, max_model_len=64)
_REQUESTS = 24
_TURNS = 6000
"""More turns of the loop than any order of the requests needs."""


@dataclass(frozen=True, slots=True)
class View:
    """A request as a policy sees it; writing to it raises."""

    priority: int
    arrival: int
    num_prompt: int
    num_computed: int
    caller: Caller


def key_is_a_total_order(subject: Subject) -> None:
    """Keys are tuples of integers of one length, and no two requests have the same."""
    policy = _policy(subject)
    keys = [policy.key(view) for view in _views(60)]
    plain = all(isinstance(key, tuple) and all(type(part) is int for part in key) for key in keys)
    require(plain, f"keys must be tuples of integers, got {next(iter(keys))!r}")
    require(len({len(key) for key in keys}) == 1, "keys have different lengths")
    twins = len(keys) - len(set(keys))
    require(not twins, f"{twins} requests have the key of another, so that their order is left to chance")


def key_is_fixed(subject: Subject) -> None:
    """A request's key never changes, however much of it is computed and whoever else there is."""
    policy = _policy(subject)
    for view in _views(60):
        keys = {policy.key(replace(view, num_computed=done)) for done in (0, 1, view.num_prompt, 4 * view.num_prompt)}
        require(len(keys) == 1, f"the key of one request changes as it is computed: {sorted(keys)}")


def victim_is_a_valid_index(subject: Subject) -> None:
    """The victim is an index into the running requests, whose list is left as it is."""
    policy, views = _policy(subject), _views(60)
    rng = random.Random(1)
    for count in (1, 1, 2, 3, 7, 20, 60):
        running = rng.sample(views, count)
        before = list(running)
        index = policy.victim(running)
        require(running == before, "choosing a victim changes the engine's list of running requests")
        valid = type(index) is int and 0 <= index < count
        require(valid, f"of {count} running requests it chooses number {index!r}")


def outputs_do_not_depend_on_the_policy(subject: Subject) -> None:
    """With memory for a few requests only, every output is what the model says."""
    engine, expected = _run(subject, blocks=26)
    wrong = [handle for handle, tokens in expected.items() if engine.outputs[handle] != tokens]
    require(not wrong, f"the outputs of requests {wrong} are wrong")


def everybody_finishes(subject: Subject) -> None:
    """Requests that keep taking each other's memory still finish, all of them."""
    for seed in range(3):
        _run(subject, blocks=18, seed=seed)


def _run(subject: Subject, *, blocks: int, seed: int = 0) -> tuple[EngineDriver, dict[int, list[int]]]:
    """Run requests of all sizes and priorities that arrive over time; returns the engine and what is expected."""
    rng, engine = random.Random(seed), _engine(subject, blocks)
    expected: dict[int, list[int]] = {}
    for turn in range(_TURNS):
        if len(expected) < _REQUESTS and turn % 3 == 0:
            prompt = [rng.randrange(_VOCABULARY) for _ in range(rng.randint(1, 30))]
            count = rng.randint(1, 30)
            handle = engine.add(prompt, count, priority=rng.randint(-2, 2))
            expected[handle] = generate(prompt, count, _VOCABULARY)
        engine.advance()
        if len(expected) == _REQUESTS and not engine.busy:
            engine.scheduler.check()
            return engine, expected
    late = sorted(set(expected) - set(engine.finished))
    raise Failed(f"after {_TURNS} turns the requests {late} are not finished: they take each other's memory for ever")


def _engine(subject: Subject, blocks: int) -> EngineDriver:
    """Return an engine whose outputs are known beforehand; few blocks make requests give way to each other."""
    sizes = blocks, _BLOCK_SIZE, _LIMITS.max_num_seqs, _LIMITS.max_model_len, _VOCABULARY
    executor = ArithmeticExecutor(ArithmeticWorker(*sizes), blocks)
    return EngineDriver(executor, _policy(subject), _LIMITS, blocks=blocks, block_size=_BLOCK_SIZE, overlap=1)


def _policy(subject: Subject) -> SchedulerPolicy:
    policy: SchedulerPolicy = subject.impl()()
    return policy


def _views(count: int) -> list[View]:
    rng = random.Random(2)
    callers = (Caller(), Caller("a"), Caller("b", "key-0123456789abcdef"), Caller("\u2603" * 256))
    return [
        View(rng.randint(-3, 3), arrival, rng.randint(1, 99), 0, rng.choice(callers)) for arrival in range(1, count + 1)
    ]


CHECKS = checks(
    key_is_a_total_order, key_is_fixed, victim_is_a_valid_index, outputs_do_not_depend_on_the_policy, everybody_finishes
)
