"""How an executor gets its worker. Importing this module is torch-free; opening a worker is not."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any, Protocol

from core_plugin_executors.options import options_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from core.api import Pending, Stream
    from core.config.resolved import EngineConfig
    from core.engine.step import StepPlan, StepResult, WorkerInfo

    Progress = Callable[[int, int], None]


class Worker(Protocol):
    """What an executor asks of a worker; `core.worker.worker.Worker` is the one that users get."""

    def start(self) -> WorkerInfo: ...

    def begin(self, plan: StepPlan, late: Callable[[], Mapping[str, Any]] | None = None) -> Pending[StepResult]: ...

    def call(self, method: str, *args: Any) -> Any: ...

    def stream(self) -> Stream: ...

    def close(self) -> None: ...


def open_worker(config: EngineConfig, on_progress: Progress) -> Worker:
    """Replay the plugin plan in this process and return core's worker, not started."""
    from core.phases import phase
    from core.plugins.boot import enter

    with phase("worker imports"):
        from core.worker.worker import Worker as CoreWorker

    worker: Worker = CoreWorker(config, enter(config.plan), on_progress)
    return worker


def make_worker(config: EngineConfig, on_progress: Progress) -> Worker:
    """Return the worker of the factory that the executor's options name, not started."""
    factory: Callable[[EngineConfig, Progress], Worker] = pkgutil.resolve_name(options_of(config).worker)
    return factory(config, on_progress)
