"""Worker halves of tasks: what becomes of the hidden states of a step. Provisional."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch
    from torch import Tensor

    from core.api.participants import BatchInputs
    from core.api.steps import NewRow, StepPlan, StepResult
    from core.api.weights import CheckpointReader

F = TypeVar("F", bound=Callable[..., Any])


class Timer(Protocol):
    """Returns a callable that does the same and is timed under this name."""

    def __call__(self, name: str, work: F) -> F: ...


def _nothing(arrays: list[np.ndarray]) -> None:
    """Leave the result as it is."""


class Enqueued(NamedTuple):
    """Work of a step that the device has still to do.

    Attributes:
        tensors: To be fetched.
        finish: Fills the result from the fetched arrays; called once, maybe by another thread and beside later steps.
    """

    tensors: Sequence[Tensor] = ()
    finish: Callable[[list[np.ndarray]], None] = _nothing


class ModelHeads(Protocol):
    """Heads of a model over its hidden states. Its shape says which it has; answers are checked."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, vocab)`. Raises `PluginError`."""
        ...

    def classify(self, hidden: Tensor) -> Tensor:
        """Project `(rows, hidden)` to `(rows, labels)`. Raises `PluginError`."""
        ...


@dataclass(frozen=True)
class RunnerSetup:
    """Context that a worker half makes its runner of. Inputs and hidden states are good until the next step.

    Attributes:
        data: That of the choice.
        options: The plugin's own options.
        heads: Of the loaded model.
        checkpoint: Folder of the model's files.
        reader: Reads them.
        device: Where tensors are made.
        tokens: `(max_rows, tokens)` int32 on the device: the tokens of every row.
        build: Makes the inputs of a step that has rows; participants have changed them as they want. They are a
            dataclass, of which `dataclasses.replace` makes a changed copy.
        forward: Runs the forward pass, by the platform's graphs where it has some: these read token ids and positions,
            and nothing else of the inputs. Returns `(tokens, hidden)`.
        plain: The same without graphs, for inputs that have more.
        upload: Returns an array on the device, without waiting. It must not be written again.
    """

    data: Mapping[str, Any]
    options: Mapping[str, Any]
    heads: ModelHeads
    checkpoint: Path
    reader: Callable[[], CheckpointReader]
    device: torch.device
    tokens: Tensor = field(repr=False)
    build: Callable[[StepPlan], BatchInputs]
    forward: Callable[[BatchInputs], Tensor]
    plain: Callable[[BatchInputs], Tensor]
    upload: Callable[[np.ndarray], Tensor]


class TaskRunner(ABC):
    """Base of what runs a task's steps: core does everything but this. Called by the thread that runs steps."""

    def admit(self, new_rows: Sequence[NewRow]) -> None:
        """Requests got their rows; what they brought is in `NewRow.parts`. The warm-up's row brings nothing."""
        return

    @abstractmethod
    def run(self, plan: StepPlan, result: StepResult) -> Enqueued:
        """Enqueue a step that has rows, and return what fills the result.

        What the engine half is told goes into `result.parts` under the task's name. A row that fails is reported in
        `result.errors`, by its place in the plan.
        """

    def time(self, timer: Timer) -> None:
        """Have the phases of every step timed, or no longer. The forward pass and the inputs are timed by core."""
        return


class WorkerTask(ABC):
    """Base of worker halves, without state."""

    @abstractmethod
    def runner(self, setup: RunnerSetup) -> TaskRunner:
        """Return what runs steps. It may be asked twice: first for one that measures how much memory a step takes.

        Raises:
            CoreError: The model cannot do it, or lacks something.
        """
