"""The engine half of a configuration's task: core's own, or that of the plan's plugin of the kind `core.tasks`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.tasks import Task, TaskSetup
from core.engine.tasks.generate import Generate
from core.plugins.kinds import TASK

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.plugins.active import ActivePlugins

OWN: Mapping[str, type[Task]] = MappingProxyType({Generate.name: Generate})
"""Engine halves of core's own tasks, by the task's name."""


def engine_half(config: EngineConfig, active: ActivePlugins) -> Task:
    """Return the engine half of a configuration's task.

    Raises:
        PluginError: CORE-P301, nobody has a task of this name; or as `ActivePlugins.make`.
    """
    if config.task in OWN:
        return OWN[config.task](TaskSetup())
    planned = active.planned(TASK.group)
    task: Task = active.make(planned, TaskSetup(config.task_data, planned.options))
    if (planned.name, task.name, task.decodes) != (config.task, config.task, False):
        text = f"task {planned.owner}: its engine half is called '{task.name}'"
        raise PluginError("CORE-P160", f"{text}, and decodes." if task.decodes else f"{text}, not '{config.task}'.")
    return task
