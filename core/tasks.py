"""The tasks that an engine can have. An engine has one, for its whole life: `EngineConfig.task` is its name.

A task is two classes: an engine half, which the scheduler and the settler ask, and a worker half, which builds the
runner. A further task is those two classes and a line in `TASKS`; nothing else of the engine knows tasks by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.engine.tasks.base import Task
    from core.worker.tasks.base import WorkerTask


@dataclass(frozen=True, slots=True)
class Halves:
    """Where the classes of a task are, as `module:class`.

    Attributes:
        engine: A `core.engine.tasks.base.Task`, in a torch-free module.
        worker: A `core.worker.tasks.base.WorkerTask`.
    """

    engine: str
    worker: str


TASKS: Mapping[str, Halves] = MappingProxyType(
    {
        "generate": Halves("core.engine.tasks.generate:Generate", "core.worker.tasks.generate:GenerateWorker"),
        "pool": Halves("core.engine.tasks.pool:Pool", "core.worker.tasks.pool:PoolWorker"),
    }
)


def engine_half(name: str) -> type[Task]:
    """Return the class of a task's engine half. Raises `KeyError` if there is no such task."""
    half: type[Task] = resolve_name(TASKS[name].engine)
    return half


def worker_half(name: str) -> type[WorkerTask]:
    """Return the class of a task's worker half. Raises `KeyError` if there is no such task."""
    half: type[WorkerTask] = resolve_name(TASKS[name].worker)
    return half
