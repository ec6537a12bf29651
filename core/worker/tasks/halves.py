"""The worker half of a configuration's task: core's own, or that of the plan's plugin of the kind `core.tasks`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from core.worker.tasks.base import OwnWorkerTask
from core.worker.tasks.generate import GenerateWorker
from core.worker.tasks.plugin import PluginWorkerTask

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig
    from core.plugins.active import ActivePlugins

OWN: Mapping[str, type[OwnWorkerTask]] = MappingProxyType({"generate": GenerateWorker})
"""Worker halves of core's own tasks, by the task's name."""


def worker_half(config: EngineConfig, active: ActivePlugins) -> OwnWorkerTask:
    """Return the worker half of a configuration's task. Raises `PluginError` CORE-P301, nobody has such a task."""
    return OWN[config.task]() if config.task in OWN else PluginWorkerTask(active)
