"""The worker: owns the device, the model, the KV cache and the rows, and executes plans."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from core import phases
from core.api.errors import EngineError, PluginError
from core.api.platform import Pending, Platform, Stream, Uploads
from core.api.steps import StepPlan, StepResult, WorkerInfo
from core.api.weights import WeightManifest
from core.config.resolved import EngineConfig
from core.engine.profile import Profile, untimed
from core.engine.tasks.halves import engine_half
from core.plugins.drivers import describe
from core.plugins.handed import QUEUE, STREAM, UPLOADS, Handed
from core.trim import trim
from core.worker.assembly import bind_worker_halves, check_taps, joined_calls, worker_stages
from core.worker.capture import NONE, graphs_for, pads
from core.worker.exhausted import EXHAUSTED, exhausted
from core.worker.graphs import GraphedForward
from core.worker.guarded import GuardedBackend, GuardedModel
from core.worker.kvcache import CachePlan, plan_cache, small_cache
from core.worker.loader import LoadedModel, load_model
from core.worker.memory import KVBudget, gib
from core.worker.participants.stages import Late
from core.worker.rows import RowTable
from core.worker.runner import StepRunner
from core.worker.states import StatePlan, plan_states
from core.worker.tasks.base import RunnerParts
from core.worker.tasks.halves import worker_half
from core.worker.transfers import Transfers
from core.worker.warmup import warm_up, widest_step

if TYPE_CHECKING:
    from core.api.weights import WeightReceiver
    from core.plugins.active import ActivePlugins
    from core.plugins.plan import PlannedPlugin

logger = logging.getLogger(__name__)

MEASURED_BLOCKS = 16
"""KV blocks of the step that shows how much memory steps take."""


class Worker:
    """One device's share of an engine.

    Args:
        active: The plan's plugins, loaded in this process.
        on_progress: Called with `(done, total)` bytes while weights load.

    `start` comes first and `close` last; in between, `begin` and `call` are for one thread at a time. What `begin`
    returned may be waited for by another.
    """

    def __init__(self, config: EngineConfig, active: ActivePlugins, on_progress: Callable[[int, int], None]) -> None:
        self._config = config
        self._active = active
        self._on_progress = on_progress
        self._task = worker_half(config, active)
        self._timeline: list[tuple[str, float]] = []
        self._platform: Platform = active.new_of("core.platforms")
        self._loaded: LoadedModel
        self._runner: StepRunner
        self._cache: CachePlan
        self._budget: KVBudget
        self._states: StatePlan
        self._weights_version = "initial"
        self._profile: Profile | None = None
        self._device = ""
        self._graphed: GraphedForward | None = None
        self._without_graphs = ""
        self._methods: Mapping[str, Callable[..., Any]] = {
            "memory": self._memory,
            "profile": self._time_steps,
            "update_weights": self._update_weights,
            "weight_version": lambda: self._weights_version,
        }

    @torch.inference_mode()
    def start(self) -> WorkerInfo:
        """Open the device, load the model, allocate the KV cache and run once.

        Raises:
            CoreError: With the cause; the worker must then be closed.
        """
        options = self._config.options
        self._bind_plugins()
        with self._phase("device"):
            self._platform.bind(options.runtime.threads_bind)
            planned, given = self._active.planned("core.platforms"), options.runtime
            device = self._active.guard(
                planned,
                "open()",
                self._platform.open,
                threads=given.threads,
                seed=options.model.seed,
                index=self._config.device_index,
            )
            self._transfers = self._meet(device)
        with self._phase("weights"):
            self._loaded = load_model(
                self._config, self._active, device, self._on_progress, check=self._check, uploads=self._uploads
            )
            self._device = device.type
            self._tell_loaded()
            trim()
        if self._platform.apart:
            with self._phase("widest step"):
                self._measure(device)
        with self._phase("kv cache"):
            caches = self._allocate(device)
        with self._phase("warm-up"):
            self._runner = self._make_runner(caches, device)
            warm_up(
                self._runner.execute,
                block_size=self._config.block_size,
                num_blocks=self._budget.num_blocks,
                max_model_len=self._config.max_model_len,
                groups=len(self._cache.layers),
                decodes=self._task.warm_up_decodes,
            )
            if self._graphed is not None:
                self._graphed.prepare()
        with self._phase("participants"):
            self._join(caches)
        self._loaded.keep()
        return WorkerInfo(
            self._budget.num_blocks,
            self._budget.bytes_per_block,
            self._facts(),
            self._timeline,
            self._cache.groups.specs,
            self._config.max_model_len,
            self._config.options.scheduler.max_num_seqs,
            self._states.snapshots,
        )

    def begin(self, plan: StepPlan, late: Late | None = None) -> Pending[StepResult]:
        """Begin one step and return its result to come; `late` waits for the late parts of a plan that announces some.

        Where the device has a queue everything is enqueued then, and `result` waits for the device alone; elsewhere the
        step is done.

        Raises:
            EngineError: CORE-E128, the memory of the device does not suffice for the step.
        """
        try:
            return self._runner.begin(plan, late)
        except EXHAUSTED as error:
            raise exhausted(self._platform, plan, error) from error

    def execute(self, plan: StepPlan, late: Late | None = None) -> StepResult:
        """Run one step and wait for it. As `begin`."""
        return self.begin(plan, late).result()

    def stream(self) -> Stream:
        """Return a stream of the platform on which to execute steps."""
        return Handed(self._loaded.owners.platform).ask("stream()", STREAM, self._platform.stream)

    @torch.inference_mode()
    def call(self, method: str, *args: Any) -> Any:
        """Call one of the named methods between steps.

        Raises:
            EngineError: There is no such method (CORE-E124).
        """
        known = self._methods.get(method)
        if known is None:
            have = ", ".join(sorted(self._methods))
            raise EngineError("CORE-E124", f"A worker has no method {method!r}; it has {have}.")
        return known(*args)

    def close(self) -> None:
        """Close connectors and the platform. Harmless on a worker that did not start, or twice."""
        runner = getattr(self, "_runner", None)
        if runner is not None:
            runner.close()
        loaded = getattr(self, "_loaded", None)
        if loaded is not None:
            loaded.close()
        self._platform.close()

    def _meet(self, device: torch.device) -> Transfers:
        """Return how this process reaches the opened device."""
        planned = self._active.planned("core.platforms")
        queue = self._active.guard(planned, "queue()", self._platform.queue)
        if queue is None:
            return Transfers(device, self._platform.apart)
        Handed(planned.owner).fit("queue()", queue, QUEUE)
        # The engine launches `overlap_depth` steps ahead of the one that it waits for; one more is being written.
        areas = self._config.options.scheduler.overlap_depth + 2
        return Transfers(device, self._platform.apart, queue, areas)

    def _uploads(self) -> Uploads | None:
        """Return what brings the checkpoint's weights to the device."""
        planned = self._active.planned("core.platforms")
        uploads = self._active.guard(planned, "uploads()", self._platform.uploads)
        return None if uploads is None else Handed(planned.owner).fit("uploads()", uploads, UPLOADS)

    def _bind_plugins(self) -> None:
        """Import what is made into objects late, so that a mistake in one is told before the weights are read."""
        self._active.bind("core.logits", "core.weight_transfer", "core.weight_stores")
        bind_worker_halves(self._active)

    def _check(self, loaded: LoadedModel) -> None:
        """Refuse, before any weight is read, what cannot work.

        Raises:
            EngineError: The KV cache cannot fit beside the weights.
            PluginError: The model cannot do what the engine's task needs.
        """
        self._task.check(self._config, loaded)
        check_taps(self._active, loaded.taps, loaded.owners.model)
        memory, weights = self._platform.memory(), loaded.weight_bytes
        states = plan_states(self._config, loaded.states, memory, unread=weights, padding=self._padding)
        plan_cache(self._config, loaded, self._active, memory, unread=weights + states.num_bytes)

    def _allocate(self, device: torch.device) -> list[Tensor]:
        """Size the cache, allocate it, and bind each layer to its part."""
        memory, mapped = self._platform.memory(), self._loaded.mapped_bytes
        self._states = plan_states(self._config, self._loaded.states, memory, unread=mapped, padding=self._padding)
        self._narrow(self._states)
        self._cache = plan_cache(
            self._config, self._loaded, self._active, memory, unread=mapped + self._states.num_bytes
        )
        if self._states.states:
            task = engine_half(self._config, self._active)
            self._states = self._states.with_snapshots(self._config, task, self._cache.budget.num_tokens)
            self._cache = plan_cache(
                self._config, self._loaded, self._active, memory, unread=mapped + self._states.num_bytes
            )
        self._budget = self._cache.budget
        self._shorten(self._budget)
        self._loaded.prepare(self._config.max_model_len)
        self._states.allocate(device, apart=self._transfers.apart)
        return self._cache.allocate(device, apart=self._transfers.apart)

    def _measure(self, device: torch.device) -> None:
        """Run the largest step over a few blocks, so that the platform knows how much memory steps take at once."""
        config = self._config
        rows, longest, size = config.options.scheduler.max_num_seqs, config.max_model_len, config.block_size
        self._loaded.prepare(longest)
        self._platform.mark_memory()
        self._cache = small_cache(config, self._loaded, MEASURED_BLOCKS + 1)
        plan = StatePlan(self._loaded.states, rows, 0, padding=self._padding)
        plan.allocate(device, apart=self._transfers.apart)
        runner = self._make_runner(self._cache.allocate(device, apart=self._transfers.apart), device)
        runner.execute(widest_step(config.step_tokens, rows, longest, size, MEASURED_BLOCKS))

    @property
    def _padding(self) -> int:
        """Slots for the states of padding."""
        return int(pads(self._platform.graphs) and self._config.options.runtime.graphs != NONE)

    def _shorten(self, budget: KVBudget) -> None:
        """Lower the longest request to what the cache holds, where that was left to core."""
        longest = self._config.max_model_len
        if budget.max_model_len < longest:
            logger.warning(
                "CORE-C210 the context is %d tokens instead of %d: more does not fit into the KV cache (%s)."
                " Raise --kv-memory, --memory-fraction or --num-blocks, or set --max-model-len.",
                budget.max_model_len,
                longest,
                budget.describe(),
            )
            self._config = self._config.shortened(budget.max_model_len)

    def _narrow(self, states: StatePlan) -> None:
        """Lower the number of rows to those whose states fit."""
        wanted = self._config.options.scheduler.max_num_seqs
        if states.rows < wanted:
            logger.warning(
                "CORE-C211 %d requests run at once instead of %d: their recurrent states take %s each. Set"
                " --max-num-seqs, or raise --memory-fraction.",
                *(states.rows, wanted, gib(states.row_bytes)),
            )
            self._config = self._config.narrowed(states.rows)

    def _make_runner(self, caches: list[Tensor], device: torch.device) -> StepRunner:
        config = self._config
        max_rows, layers = config.options.scheduler.max_num_seqs, self._cache.layers
        rows = RowTable(
            max_rows,
            config.max_model_len,
            config.block_size,
            self._transfers,
            layers,
            states=self._loaded.states,
        )
        loaded = self._loaded
        model = GuardedModel(loaded.model, loaded.owners.model, config.shape.vocab_size)
        backend = GuardedBackend(loaded.backend, loaded.owners.attention)
        graphed, self._without_graphs = graphs_for(
            *(self._platform.graphs, loaded, model, backend, rows),
            mode=config.options.runtime.graphs,
            decodes=self._task.warm_up_decodes > 0,
            tokens=config.step_tokens,
        )
        self._graphed = graphed
        widest = 0 if self._platform.graphs is None else self._platform.graphs.widest
        loaded.taps.allocate(max(config.step_tokens, widest), device)
        planner = backend if graphed is None else graphed.planner(backend)
        setup = RunnerParts(config, self._active, loaded, model, planner, caches, rows, graphed)
        return self._task.runner(setup)

    def _tell_loaded(self) -> None:
        """Tell hook plugins that weights are in place."""
        info = {
            "architecture": self._config.checkpoint.architecture,
            "version": self._weights_version,
            "num_parameters": self._loaded.num_parameters,
            "device": self._device,
        }
        self._active.hooks.model_loaded(self._loaded.model, info)

    def _join(self, caches: list[Tensor]) -> None:
        """Let the plan's participants take part from now on, and offer their calls."""
        config, shape = self._config, self._config.shape
        stages = worker_stages(
            self._active,
            caches,
            self._runner.tokens,
            shape.vocab_size,
            config.block_size,
            config.options.scheduler.draft_tokens,
            taps=self._loaded.taps.found,
            apart=self._transfers.apart,
        )
        self._methods = joined_calls(self._methods, stages)
        self._runner.stages = stages

    def _facts(self) -> dict[str, str]:
        attention = self._config.plan.one("core.attention_backends")
        offered = {"graphs": self._platform.graphs, "collectives": self._platform.collectives}
        facets = [name for name, facet in offered.items() if facet is not None]
        further = {
            "kernels": self._loaded.kernels.describe(),
            "facets": ", ".join(facets),
            "graphs": self._without_graphs if self._graphed is None else self._graphed.describe(),
        }
        return {
            **self._platform.describe(),
            "checkpoint": gib(self._config.checkpoint.num_bytes),
            "attention": attention.name if attention else "",
            "kv cache": self._budget.describe(),
            **({"states": self._states.describe()} if self._states.states else {}),
            **{name: text for name, text in further.items() if text},
        }

    def _memory(self) -> dict[str, int]:
        """Return total and free memory of the device, and the KV cache's size, in bytes."""
        memory = self._platform.memory()
        return {"total": memory.total, "free": memory.free, "kv": self._budget.num_bytes}

    def _time_steps(self, wanted: bool) -> dict[str, list[float]]:
        """Begin to time the phases of steps; or stop and return what `Profile.report` says of them."""
        profile, self._profile = self._profile, Profile() if wanted else None
        self._runner.time(self._profile or untimed)
        return {} if profile is None else profile.report()

    def _update_weights(self, info: Mapping[str, Any]) -> str:
        """Load new weights into the model and return their version.

        Raises:
            EngineError: The engine was started without a weight-transfer engine (CORE-E123).
            PluginError: CORE-P108, the weight-transfer engine raised something without a code. As after any error,
                the old weights stay, and so does their version.
        """
        planned = self._config.plan.one("core.weight_transfer")
        if planned is None:
            raise EngineError(
                "CORE-E123",
                "Weights cannot be updated: no weight-transfer engine was chosen.",
                hint="Start with --weight-transfer; `core plugins` lists the installed ones.",
            )
        receiver: WeightReceiver = self._active.make(planned, planned.options)
        try:
            self._weights_version = self._receive(planned, receiver, info)
        finally:
            self._end_update(planned, receiver)
        self._runner.weights_replaced()
        trim()
        self._tell_loaded()
        return self._weights_version

    def _receive(self, planned: PlannedPlugin, receiver: WeightReceiver, info: Mapping[str, Any]) -> str:
        """Replace all weights or none, and return the version of the new ones."""
        manifest = self._active.guard(planned, "begin()", receiver.begin, info)
        if not isinstance(manifest, WeightManifest):  # before anything is replaced
            wrong = f"begin() gave a {type(manifest).__name__}, not a WeightManifest"
            raise PluginError("CORE-P108", f"weight transfer {planned.owner}: {wrong}.")
        self._loaded.reload(self._active.guard_items(planned, "stream()", receiver.stream))
        return manifest.version

    def _end_update(self, planned: PlannedPlugin, receiver: WeightReceiver) -> None:
        """Let the receiver clean up. Whether it can does not change which weights are in place."""
        try:
            receiver.end()
        except Exception as error:
            text = "CORE-P161 weight transfer %s: end() raised %s; what it has opened may stay open."
            logger.warning(text, planned.owner, describe(error))

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begin = perf_counter()
        yield
        seconds = perf_counter() - begin
        self._timeline.append((name, seconds))
        phases.report(name, seconds)
