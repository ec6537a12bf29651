"""Executors: where workers live and how a step reaches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from core.api.platform import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from core.config.resolved import EngineConfig
    from core.engine.step import StepPlan, StepResult, WorkerInfo


class Executor(Protocol):
    """Runtime of an `ExecutorSpec`. Importing it is torch-free."""

    def __init__(self, config: EngineConfig, *, on_progress: Callable[[int, int], None] | None = None) -> None:
        """Take the configuration; call `on_progress` with `(done, total)` bytes while weights are loaded."""
        ...

    def start(self) -> WorkerInfo:
        """Start the workers: open the device, load the weights, allocate the KV cache."""
        ...

    def launch(self, plan: StepPlan) -> Pending[StepResult]:
        """Submit a step and return at once. Steps run in the order of their launches."""
        ...

    def late(self, number: int, parts: Mapping[str, Any]) -> None:
        """Hand the late parts, by participant, to step `number`, whose plan announced some; returns at once.

        Called once for every such step, in their order, when all steps before it have settled: other steps may have
        been launched behind it. The worker waits for them at the end of the step's forward pass.
        """
        ...

    def call(self, method: str, *args: Any) -> Any:
        """Call a named worker method between steps and return its (plain data) answer."""
        ...

    def healthy(self) -> bool:
        """Say whether the workers live and move on; at once, from any thread.

        Asked after a step that failed, and about once a second while nothing comes from the workers. A worker that
        computes is healthy however long it takes; one that is gone, stopped or cannot answer any more is not. The
        server shows an engine with such a worker as not ready, and ends it after `--engine-hang-timeout`.
        """
        ...

    def close(self) -> None:
        """Stop the workers and release their devices; nothing is called afterwards."""
        ...
