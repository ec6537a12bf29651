"""Executors: where workers live and how a step reaches them."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any, Protocol

from core.api.platform import Pending

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from core.api.platform import Stream
    from core.api.steps import StepPlan, StepResult, WorkerInfo

    OnProgress = Callable[[int, int], None]
    """Called with `(done, total)` bytes while weights are loaded."""


class Worker(Protocol):
    """Core's worker: one device with the model, the KV cache and the rows.

    `start` comes first and `close` last. In between, `begin` and `call` are for one thread at a time; what `begin`
    returned may be waited for by another.
    """

    def start(self) -> WorkerInfo:
        """Open the device, load the weights, allocate the KV cache. Raises `CoreError`; close the worker then."""
        ...

    def begin(self, plan: StepPlan, late: Callable[[], Mapping[str, Any]] | None = None) -> Pending[StepResult]:
        """Run a step, or enqueue it on a device that goes on by itself.

        Args:
            late: Waits for the late parts that the plan announces and returns them, by participant. Called at the end
                of the forward pass, unless the step failed before.
        """
        ...

    def call(self, method: str, *args: Any) -> Any:
        """Call a method by name with plain data, between steps. Raises `EngineError` for a name that is none."""
        ...

    def stream(self) -> Stream:
        """Return where work is submitted that runs beside the calling thread, in its order."""
        ...

    def close(self) -> None:
        """Release the device; nothing is called afterwards."""
        ...


class WorkerOpener(Protocol):
    """Opens the worker of an engine, in the process where `open` is called."""

    def open(self, on_progress: OnProgress) -> Worker:
        """Load the plan's plugins in this process and return the worker, not started. Imports torch.

        Raises:
            CoreError: A plugin cannot be loaded.
        """
        ...

    def dumps(self) -> str:
        """Return this opener as one line of text, for `load_opener` in another process.

        It holds the configuration of the engine, secrets included: it is for a pipe, and for nothing that others read.
        """
        ...


def load_opener(text: str) -> WorkerOpener:
    """Return the opener that another process wrote with `dumps`: this process is to have the same plugins installed."""
    name, _, content = text.rstrip("\n").partition(" ")
    opener: WorkerOpener = pkgutil.resolve_name(name)(content)
    return opener


class ExecutorSetup(Protocol):
    """Context that an executor is constructed with.

    Attributes:
        options: The plugin's own options.
        opener: Opens the worker.
        start_timeout: Seconds that the start of a worker may take (`--start-timeout`).
        on_progress: To be called with `(done, total)` bytes while weights are loaded.
    """

    @property
    def options(self) -> Mapping[str, Any]: ...

    @property
    def opener(self) -> WorkerOpener: ...

    @property
    def start_timeout(self) -> float: ...

    @property
    def on_progress(self) -> OnProgress: ...


class Executor(Protocol):
    """Runtime of an `ExecutorSpec`. Importing it is torch-free."""

    def __init__(self, setup: ExecutorSetup) -> None: ...

    def start(self) -> WorkerInfo:
        """Open and start the worker. Raises what it raised, once it is closed."""
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
