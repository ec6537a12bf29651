"""A task that is a plugin, in the worker: its runner between core's steps and its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from core.api.descriptors import TaskSpec
from core.api.errors import PluginError
from core.api.runners import Enqueued, RunnerSetup, TaskRunner, Timer
from core.api.steps import NewRow, StepPlan, StepResult
from core.engine.profile import untimed
from core.layers.guard import PASSED
from core.plugins.drivers import describe
from core.plugins.kinds import TASK
from core.worker.inputs import StepInputs
from core.worker.runner import StepRunner
from core.worker.tasks.base import OwnWorkerTask, RunnerParts

if TYPE_CHECKING:
    from core.api.participants import BatchInputs
    from core.plugins.active import ActivePlugins


class PluginRunner(StepRunner):
    """Has a plugin make of hidden states what requests get.

    Args:
        owner: The plugin, for errors.
    """

    def __init__(self, parts: RunnerParts, owner: str) -> None:
        self._owner = owner
        self._made: TaskRunner | None = None
        super().__init__(parts.model, parts.backend, parts.caches, parts.rows, parts.graphed)

    def have(self, made: TaskRunner) -> None:
        """Take the plugin's runner, which is made with what this one lends."""
        self._made = made
        self._made.time(untimed)

    def time(self, timer: Timer) -> None:
        """Have the phases of every step timed, or no longer (`untimed`)."""
        super().time(timer)
        self._whole = timer("forward", self._plain)
        if self._made is not None:
            self._made.time(timer)

    def build(self, plan: StepPlan) -> BatchInputs:
        """Make the inputs of a step."""
        return self._build(plan)

    def forward(self, inputs: BatchInputs) -> Tensor:
        """Run the forward pass, by graphs where there are some."""
        return self._forward(cast(StepInputs, inputs))

    def plain(self, inputs: BatchInputs) -> Tensor:
        """Run the forward pass without graphs."""
        return self._whole(cast(StepInputs, inputs))

    def _admit(self, new_rows: Sequence[NewRow]) -> None:
        if self._made is not None:
            self._asked("admit()", self._made.admit, new_rows)

    def _run(self, plan: StepPlan, result: StepResult) -> Enqueued:
        assert self._made is not None
        enqueued: Enqueued = self._asked("run()", self._made.run, plan, result)
        return enqueued

    def _asked(self, what: str, method: Any, *given: Any) -> Any:
        """Call the plugin. Raises `PluginError` CORE-P108 for what has no code."""
        try:
            return method(*given)
        except PASSED:
            raise
        except Exception as error:
            raise PluginError("CORE-P108", f"task {self._owner}: {what} raised {describe(error)}.") from error


class PluginWorkerTask(OwnWorkerTask):
    """The worker half of the plan's task plugin."""

    def __init__(self, active: ActivePlugins) -> None:
        self._planned = active.planned(TASK.group)
        spec = cast(TaskSpec, active.spec(TASK.group))
        path = spec.worker_impl
        self._half = active.guard(self._planned, path, active.load(self._planned, path))

    def runner(self, setup: RunnerParts) -> PluginRunner:
        """Return a runner with the plugin's. Raises `PluginError`, and what the plugin raises with a code."""
        active, config, rows = setup.active, setup.config, setup.rows
        runner = PluginRunner(setup, self._planned.owner)
        lent = RunnerSetup(
            data=config.task_data,
            options=self._planned.options,
            heads=setup.model,
            checkpoint=Path(config.checkpoint.path),
            reader=partial(active.new_of, "core.weight_loaders"),
            device=rows.device,
            tokens=rows.tokens,
            build=runner.build,
            forward=runner.forward,
            plain=runner.plain,
            upload=rows.transfers.upload,
        )
        made = active.guard(self._planned, "runner()", self._half.runner, lent)
        if not isinstance(made, TaskRunner):
            raise PluginError(
                "CORE-P160", f"task {self._planned.owner}: runner() gave a {type(made).__name__}, not a TaskRunner."
            )
        runner.have(made)
        return runner
