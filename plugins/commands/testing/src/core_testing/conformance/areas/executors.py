"""Executors: steps in their order, calls between them, and nothing left when they are closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from core.api.executors import Executor
from core.api.steps import WorkerInfo
from core.config.resolved import EngineConfig
from core.engine.opening import PlannedSetup
from core_testing.conformance.outcome import checks, require, require_core_error
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.footprint import Footprint
from core_testing.conformance.tools.tiny_engine import (
    BLOCKS,
    OneTokenAStep,
    expected,
    greedy,
    some_prompts,
    tiny_config,
    without_weights,
)

_COUNT = 8
_PATIENCE = 10.0
"""Seconds that processes and threads may take to disappear."""


def steps_run_in_order(subject: Subject) -> None:
    """Steps that are launched ahead run in order: several requests at once get the reference's greedy tokens."""
    with _started(subject) as (executor, config, info):
        require(info.num_blocks == BLOCKS, f"start reports {info.num_blocks} KV blocks, configured are {BLOCKS}")
        require(info.bytes_per_block > 0, f"start reports {info.bytes_per_block} bytes per block")
        found = greedy(executor, config, some_prompts(), _COUNT)
        meant = expected(some_prompts(), _COUNT)
        require(found == meant, f"requests get the tokens {found}, the reference gives {meant}")


def late_parts_reach_their_step(subject: Subject) -> None:
    """Every step samples what its own late part allows, while others are launched ahead; the next ones need none."""
    with _started(subject) as (executor, config, _):
        found = greedy(executor, config, some_prompts(), _COUNT, [OneTokenAStep()])
        require([len(one) for one in found] == [_COUNT] * len(found), f"requests get the tokens {found}")
        free = greedy(executor, config, some_prompts()[:1], 3)
        require(free == expected(some_prompts()[:1], 3), f"after steps with late parts requests get the tokens {free}")


def calls_run_between_steps(subject: Subject) -> None:
    """`call` reaches the worker before, between and after steps; an unknown method is an error and harms nothing."""
    with _started(subject) as (executor, config, _):
        memory = executor.call("memory")
        require(memory["kv"] > 0, f"call('memory') gives {memory!r}")
        require_core_error(executor.call, "no_such_method", what="call('no_such_method')")
        first = greedy(executor, config, some_prompts()[:1], 3)
        version = executor.call("weight_version")
        require(version == "initial", f"call('weight_version') gives {version!r}, due is 'initial'")
        second = greedy(executor, config, some_prompts()[:1], 3)
        require(first == second == expected(some_prompts()[:1], 3), "a call between steps changes what they compute")
        require(executor.healthy(), "a refused call makes it report that it is not healthy")


def close_leaves_nothing_behind(subject: Subject) -> None:
    """After `close` no process and no thread is left; a second `close` is harmless, and steps are refused."""
    before = Footprint.now()
    with _started(subject) as (executor, _, _):
        require(executor.healthy(), "once started it reports that it is not healthy")
        executor.close()
        executor.close()
        require(not executor.healthy(), "once closed it reports that it is healthy")
        require_core_error(executor.call, "memory", what="call on a closed executor")
        before.require_nothing_more(_PATIENCE)


def failed_start_leaves_nothing_behind(subject: Subject) -> None:
    """A start that fails raises the worker's coded error, and leaves no process and no thread."""
    config, before = without_weights(subject), Footprint.now()
    executor: Executor = subject.impl()(PlannedSetup.of(config))
    try:
        require_core_error(executor.start, what="start() with an empty checkpoint directory")
        require(not executor.healthy(), "after a failed start it reports that it is healthy")
    finally:
        executor.close()
    before.require_nothing_more(_PATIENCE)


@contextmanager
def _started(subject: Subject) -> Iterator[tuple[Executor, EngineConfig, WorkerInfo]]:
    config = tiny_config(subject)
    executor: Executor = subject.impl()(PlannedSetup.of(config))
    try:
        yield executor, config, executor.start()
    finally:
        executor.close()


CHECKS = checks(
    steps_run_in_order,
    late_parts_reach_their_step,
    calls_run_between_steps,
    close_leaves_nothing_behind,
    failed_start_leaves_nothing_behind,
)
