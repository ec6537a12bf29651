"""The engine core: one scheduler, one executor, and the messages that drive them.

It is the same object in every set-up: stepped by the caller, run by a thread, or run by a process of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from core import logs
from core.api.errors import CoreError, EngineError
from core.api.executors import Executor
from core.api.steps import WorkerInfo
from core.config.resolved import EngineConfig
from core.engine.assembly import BOUND, Setup, engine_stages
from core.engine.blocks import BlockPool
from core.engine.environment import apply_environment
from core.engine.hashing import BlockHasher, stable_key
from core.engine.inbound import possible
from core.engine.latency import LatencyTarget
from core.engine.loop import EngineLoop
from core.engine.managers import planned_managers
from core.engine.messages import (
    Abort,
    Add,
    Call,
    CallResult,
    Finished,
    FromEngine,
    Outputs,
    Progress,
    Ready,
    Shutdown,
    Stats,
    ToEngine,
)
from core.engine.opening import PlannedSetup
from core.engine.parts import restore_all
from core.engine.policy import GuardedPolicy
from core.engine.prefix import PrefixCache
from core.engine.profile import Profile, untimed
from core.engine.request import Request
from core.engine.rows import RequestTable
from core.engine.scheduler import Scheduler
from core.engine.snapshots import Snapshots
from core.engine.step_budget import Limits
from core.engine.tasks.halves import engine_half
from core.plugins.active import ActivePlugins, enter
from core.plugins.faults import Faults
from core.plugins.kinds import TASK
from core.plugins.plan import PlannedPlugin

logger = logging.getLogger(__name__)


class EngineCore:
    """Applies messages, advances the loop, and answers calls.

    Attributes:
        ready: What clients are told once the engine can serve.
        stopping: Set by a `Shutdown` message.
        dropped_messages: Counted by who receives messages for it.
        impossible: Requests that no client of core's sends: of tokens that are none, under a handle that is in use.
        faults: Those of the plugins whose objects run in the loop.
        task: What it does for its requests.
    """

    def __init__(self, config: EngineConfig, executor: Executor, info: WorkerInfo, active: ActivePlugins) -> None:
        config = config.shortened(info.max_model_len).narrowed(info.max_num_seqs)
        self.config, self.executor, self.active, self.info = config, executor, active, info
        options = config.options
        self.faults: list[Faults] = []
        self.hasher = BlockHasher(config.block_size, stable_key(config, active.hooks, info.groups))
        managers = planned_managers(config, info.groups, active)
        self.rows = RequestTable(
            options.scheduler.max_num_seqs, config.max_model_len, config.block_size, managers.groups
        )
        self.pool = BlockPool(info.num_blocks)
        self.task = engine_half(config, active)
        shares = options.kv.prefix_caching and self.task.shares_prefixes
        snapshots = None
        if config.shape.recurrent:
            # Without snapshots, what a prefix has left in states is nobody's but its request's.
            shares = shares and info.snapshots > 0
            snapshots = Snapshots(self.rows, info.snapshots, config.state_interval) if shares else None
        self.cache = PrefixCache(self.pool, self.hasher, enabled=shares, managers=managers, snapshots=snapshots)
        setup = Setup(config, info, active, self.task, self._faults, self.cache.cached_tokens)
        self.stages = engine_stages(setup)
        self.scheduler = Scheduler(
            self.task.limits(Limits.of(config)),
            self.rows,
            self.cache,
            self._policy(),
            self.stages,
            _latency(config) if self.task.decodes else None,
            self.task,
        )
        self._added = {**self.stages.added, self.task.name: self.task.part}
        self._calls = self.stages.joined_calls(self._own_calls())
        self.loop = EngineLoop(self.scheduler, executor, options.scheduler.overlap_depth)
        self.stopping = False
        self.dropped_messages = self.impossible = 0
        self._arrivals = 0
        self._profile: Profile | None = None
        self.ready = Ready(
            num_blocks=self.pool.total,
            block_size=config.block_size,
            max_model_len=min(config.max_model_len, self.scheduler.longest),
            facts=info.facts,
            timeline=info.timeline,
        )

    @staticmethod
    def start(config: EngineConfig, on_progress: Callable[[Progress], None] | None = None) -> EngineCore:
        """Load the planned plugins and start the workers. Raises `CoreError` with the cause."""
        began = time.perf_counter()
        apply_environment(config.environment)
        active = enter(config.plan)
        active.bind(*_BOUND)  # a mistake in one of them is told before the weights are read
        report = on_progress or (lambda progress: None)
        told = lambda done, total: report(Progress(done, total))  # noqa: E731 - given to the executor as it is
        executor: Executor = active.make(active.planned("core.executors"), PlannedSetup.of(config, told))
        try:
            info = executor.start()
            core = EngineCore(config, executor, info, active)
        except BaseException:
            executor.close()
            raise
        accounted = sum(seconds for _, seconds in core.ready.timeline)
        core.ready.timeline.append(("engine", time.perf_counter() - began - accounted))
        return core

    # -- messages --------------------------------------------------------------------------------------------------

    def handle(self, message: ToEngine) -> list[FromEngine]:
        """Apply one message and return what it answers at once."""
        if isinstance(message, Add):
            return self._add(message)
        if isinstance(message, Abort):
            self._abort(message.handles)
        elif isinstance(message, Call):
            settled = self.settle_all()  # calls happen between steps
            return [*settled, self._call(message)]
        elif isinstance(message, Shutdown):
            self.stopping = True
        return []

    def advance(self) -> list[FromEngine]:
        """Run one turn of the loop."""
        outputs = self.loop.advance()
        if outputs is None:
            return []
        outputs.stats = self.stats()
        return [outputs]

    def settle_all(self) -> list[FromEngine]:
        """Wait for every step in flight and return their outputs."""
        return list(self.loop.drain())

    def stats(self) -> Stats:
        """Return counters and gauges of this moment."""
        totals = self.loop.settler.totals
        return Stats(
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            blocks_total=self.pool.total,
            blocks_used=self.pool.used,
            steps=totals.steps,
            preemptions=self.scheduler.preemptions,
            prompt_tokens_computed=totals.prompt_tokens,
            prefix_queries=self.cache.queries,
            prefix_hits=self.cache.hits,
            scheduled_tokens=totals.scheduled_tokens,
            wasted_tokens=totals.wasted_tokens,
            blocks_freed_early=self.scheduler.blocks_freed_early,
            dropped_messages=self.dropped_messages + self.impossible,
        )

    def healthy(self) -> bool:
        """Whether the workers live and move on, as far as the executor knows; safe from any thread."""
        try:
            return self.executor.healthy()
        except Exception:
            logger.exception("the executor failed to say how its workers fare")
            return False

    def probe(self) -> None:
        """Ask the workers for an answer: raises if one is gone, waits for one that is merely stuck."""
        self.executor.call("memory")

    def close(self) -> None:
        """Stop the workers."""
        self.active.events("stopped", {})
        self.stages.close()
        self.executor.close()

    def _add(self, message: Add) -> list[FromEngine]:
        """Start a request; whatever is wrong with it ends this request alone."""
        if message.handle in self.scheduler.requests:
            self.impossible += 1
            logger.error("a second request %d was dropped: the first one is not done", message.handle)
            return []
        if not possible(message, self.config.shape.vocab_size):
            self.impossible += 1
            return [Outputs(finished=[Finished(message.handle, "error", None, "the request's tokens cannot be")])]
        try:
            self._check_task(message)
            restore_all(message.parts, self._added)
            request = Request(message, self._arrivals, self.hasher.root(salt=message.cache_salt))
            self._arrivals += 1
            self.scheduler.add(request)
        except Exception as error:
            if not isinstance(error, ValueError):
                logger.exception("request %d cannot be added", message.handle)
            return [Outputs(finished=[Finished(message.handle, "error", None, str(error))])]
        return []

    def _check_task(self, message: Add) -> None:
        if message.task != self.task.name:
            raise ValueError(f"CORE-E191 this engine's task is '{self.task.name}'; the request's is '{message.task}'")

    def _abort(self, handles: list[int]) -> None:
        for handle in handles:
            request = self.scheduler.requests.get(handle)
            if request is not None:
                self.scheduler.finish(request)
                self.loop.settler.totals.finished["abort"] += 1

    # -- calls -----------------------------------------------------------------------------------------------------

    def _call(self, message: Call) -> CallResult:
        method = self._calls.get(message.method)
        if method is None:
            known = ", ".join(sorted(self._calls))
            error = EngineError("CORE-E140", f"the engine has no method '{message.method}'.", hint=f"Known: {known}.")
            return CallResult(message.number, error=error.to_dict())
        try:
            return CallResult(message.number, method(*message.args))
        except CoreError as error:
            return CallResult(message.number, error=error.to_dict())
        except Exception as error:
            logger.exception("call %s failed", message.method)
            failure = EngineError("CORE-E141", f"engine method '{message.method}' failed: {error}")
            return CallResult(message.number, error=failure.to_dict())

    def _own_calls(self) -> dict[str, Callable[..., Any]]:
        return {
            "check": self._check,
            "participant_stats": self.stages.stats,
            "pause": self._pause,
            "plugin_faults": self._plugin_faults,
            "profile": self._time_steps,
            "recent_log": self._recent_log,
            "reset_prefix_cache": self._reset_prefix_cache,
            "stats": self._stats_dict,
            "update_weights": self._update_weights,
            "worker": self._worker,
        }

    def _reset_prefix_cache(self) -> bool:
        self.scheduler.forget_cache()
        return True

    def _check(self) -> bool:
        self.scheduler.check()
        return True

    def _pause(self, paused: bool) -> bool:
        """Launch no step from now on, or go on; requests wait as they are meanwhile."""
        self.loop.paused = paused
        return paused

    def _stats_dict(self) -> dict[str, int]:
        stats = self.stats()
        return {name: getattr(stats, name) for name in stats.__struct_fields__}

    def _plugin_faults(self) -> list[dict[str, Any]]:
        """Return what failed in plugins' objects without ending the engine, as plain data."""
        return [one.to_dict() for one in self.faults if one.count]

    def _policy(self) -> GuardedPolicy:
        """Return the plan's scheduling policy."""
        ((planned, _, _),) = self.active.impls(_SCHEDULERS)
        return GuardedPolicy(self.active.new(planned), self._faults(planned, "first come, first served instead"))

    def _faults(self, planned: PlannedPlugin, instead: str, optional: bool = False) -> Faults:
        self.faults.append(Faults(planned, instead, optional=optional))
        return self.faults[-1]

    def _time_steps(self, wanted: bool) -> dict[str, list[float]]:
        """Begin to time the phases of steps; or stop and return what `Profile.report` says of all of them."""
        worker = self.executor.call("profile", wanted)
        profile, self._profile = self._profile, Profile() if wanted else None
        self.loop.time(self._profile or untimed)
        return {**({} if profile is None else profile.report()), **worker}

    def _recent_log(self, count: int) -> list[dict[str, Any]]:
        return logs.recent(count)

    def _worker(self, method: str, *args: Any) -> Any:
        return self.executor.call(method, *args)

    def _update_weights(self, info: dict[str, Any]) -> Any:
        """Load new weights between steps. What was computed with the old ones is dropped and computed again."""
        before = self.executor.call("weight_version")
        try:
            version = self.executor.call("update_weights", info)
        except CoreError:
            # A hook that is told of the new weights may raise when they are in place.
            if (version := self.executor.call("weight_version")) != before:
                self._renew(version, info)
            raise
        self._renew(version, info)
        self.active.events("weights_updated", {"version": version})
        return version

    def _renew(self, version: str, info: dict[str, Any]) -> None:
        """Compute everything that runs anew, and find nothing that other weights have computed."""
        self.hasher.update(version, info)
        self.scheduler.restart_running()
        self.scheduler.rehash(lambda request: self.hasher.root(salt=request.cache_salt))
        self.scheduler.forget_cache()


_SCHEDULERS = "core.schedulers"
_BOUND = (_SCHEDULERS, TASK.group, *BOUND)
"""Kinds of which this process makes objects."""


def _latency(config: EngineConfig) -> LatencyTarget | None:
    options = config.options.scheduler
    if not options.max_itl_ms:
        return None
    return LatencyTarget(options.max_itl_ms / 1000, config.block_size)
