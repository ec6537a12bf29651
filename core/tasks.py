"""The tasks that an engine can have. An engine has one, for its whole life: `EngineConfig.task` is its name.

A task is an engine half, which the scheduler and the settler ask, and a worker half, which builds the runner. Core's
own are the lines of `TASKS`; any other is the plan's plugin of the kind `core.tasks`. Nothing else of the engine knows
tasks by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.tasks import Task, TaskSetup

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.plugins.active import ActivePlugins
    from core.worker.tasks.base import OwnWorkerTask

GROUP = "core.tasks"
"""Kind of the plugins that are tasks."""


@dataclass(frozen=True, slots=True)
class Halves:
    """Where the classes of a task of core's are, as `module:class`.

    Attributes:
        engine: A `core.api.tasks.Task`, in a torch-free module.
        worker: A `core.worker.tasks.base.OwnWorkerTask`.
    """

    engine: str
    worker: str


TASKS: Mapping[str, Halves] = MappingProxyType(
    {"generate": Halves("core.engine.tasks.generate:Generate", "core.worker.tasks.generate:GenerateWorker")}
)


_PLUGGED = "core.worker.tasks.plugged:PluggedWorker"
"""The worker half of every plugin; it imports torch."""


def engine_half(config: EngineConfig, active: ActivePlugins) -> Task:
    """Return the engine half of a configuration's task.

    Raises:
        PluginError: CORE-P301, nobody has a task of this name; or as `ActivePlugins.make`.
    """
    if config.task in TASKS:
        made: Task = resolve_name(TASKS[config.task].engine)(TaskSetup())
        return made
    planned = active.planned(GROUP)
    task: Task = active.make(planned, TaskSetup(config.task_data, planned.options))
    if (planned.name, task.name, task.decodes) != (config.task, config.task, False):
        text = f"task {planned.owner}: its engine half is called '{task.name}'"
        raise PluginError("CORE-P160", f"{text}, and decodes." if task.decodes else f"{text}, not '{config.task}'.")
    return task


def worker_half(config: EngineConfig, active: ActivePlugins) -> OwnWorkerTask:
    """Return the worker half of a configuration's task. Raises as `engine_half`."""
    if config.task in TASKS:
        own: OwnWorkerTask = resolve_name(TASKS[config.task].worker)()
        return own
    plugged: OwnWorkerTask = resolve_name(_PLUGGED)(active)
    return plugged
