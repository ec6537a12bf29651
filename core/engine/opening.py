"""From an engine's configuration to its worker, in this process or in another one."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.config.resolved import EngineConfig
from core.phases import phase
from core.plugins.active import enter

if TYPE_CHECKING:
    from core.api.executors import Worker


class PlannedWorker:
    """`core.api.executors.WorkerOpener` of a configuration."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config

    @classmethod
    def loads(cls, content: str) -> PlannedWorker:
        """Return what `dumps` of another process wrote behind the name of this function."""
        return cls(EngineConfig.received(content))

    def dumps(self) -> str:
        """Return the name of `loads`, a blank, and the configuration as JSON."""
        return f"{__name__}:{type(self).__qualname__}.loads {self._config.model_dump_json()}"

    def open(self, on_progress: Callable[[int, int], None]) -> Worker:
        """Replay the plugin plan in this process and return the worker, not started.

        The worker is imported by its name: this module stays free of torch.
        """
        with phase("worker imports"):
            make: Callable[..., Worker] = pkgutil.resolve_name("core.worker.worker:Worker")
        return make(self._config, enter(self._config.plan), on_progress)


@dataclass(frozen=True, slots=True)
class PlannedSetup:
    """`core.api.executors.ExecutorSetup` of a configuration."""

    options: Mapping[str, Any]
    opener: PlannedWorker
    start_timeout: float
    on_progress: Callable[[int, int], None]

    @classmethod
    def of(cls, config: EngineConfig, on_progress: Callable[[int, int], None] | None = None) -> PlannedSetup:
        """Return what the executor of the plan is made with."""
        planned = config.plan.one("core.executors")
        return cls(
            options=planned.options if planned else {},
            opener=PlannedWorker(config),
            start_timeout=config.options.runtime.start_timeout,
            on_progress=on_progress or _untold,
        )


def _untold(done: int, total: int) -> None:
    """Stand in for a progress callback that nobody gave."""
