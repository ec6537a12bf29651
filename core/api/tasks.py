"""Tasks: what an engine does for its requests, where that is not sampling tokens. Provisional.

An engine has one task for its whole life. A task is a descriptor (`TaskSpec`) and four objects: a function that says
before anything is loaded whether a model is for it (`choose`), an engine half, which the scheduler and the settler ask
(`Task`), a worker half, which makes of hidden states what requests get (`core.api.runners`), and a front half, which
makes prompts of calls and answers of what comes back (`core.api.fronts`). What they tell each other travels as parts
under the task's name, beside those of participants:

    Add.parts          front half -> engine half, of the type `Task.part`
    NewRow.parts       engine half -> worker half, when the request gets its row (`Task.row_parts`)
    StepResult.parts   worker half -> engine half, read by `Task.settle`
    Finished.parts     engine half -> front half (`TaskSettler.end`), of the type `TaskFront.part`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from core.api.participants import StagedRequest

if TYPE_CHECKING:
    import numpy as np

    from core.api.shapes import ModelShape
    from core.api.steps import StepPlan, StepResult
    from core.api.weights import CheckpointInfo


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Facts that are known before anything is loaded, for `TaskSpec.choose`.

    Attributes:
        checkpoint: The checkpoint's configuration and what its makers' files say.
        shape: The model's.
        settings: Values of the options of the section `model` that the descriptor names.
        options: The plugin's own options.
    """

    checkpoint: CheckpointInfo
    shape: ModelShape
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """A task takes a model, and this follows from it.

    Attributes:
        context: Tokens of the longest request, unless the user says otherwise.
        data: What the halves go by, as plain data of which JSON can be made: it crosses processes.
    """

    context: int
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskSetup:
    """Context that the engine half of a task is constructed with.

    Attributes:
        data: That of the choice.
        options: The plugin's own options.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Limits of one step.

    Attributes:
        max_num_seqs: Requests that run at once.
        max_num_batched_tokens: Tokens of a step.
        max_chunk: Most tokens of one request in a step.
        max_model_len: Longest request, prompt and output.
        soft_budget: Whether decoding rows are not counted against the budget of tokens, and `slack` more may complete a
            prompt.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_chunk: int
    max_model_len: int
    soft_budget: bool = False

    @property
    def slack(self) -> int:
        """Tokens by which a step may exceed its budget for the end of a prompt."""
        return self.max_num_batched_tokens // 8 if self.soft_budget else 0

    @property
    def longest_chunk(self) -> int:
        """Most tokens of one request in a step, whatever its budget."""
        return min(self.max_chunk, self.max_num_batched_tokens + self.slack)


L = TypeVar("L", bound=StepLimits)


class TaskRequest(StagedRequest, Protocol):
    """A request as its task sees it when it arrives.

    Attributes:
        reusable: Whether cached prefixes may stand in for computation; a task that needs every position says no.
    """

    reusable: bool


class SettledStep(Protocol):
    """A step whose result came.

    Attributes:
        plan: What ran.
    """

    @property
    def plan(self) -> StepPlan: ...


class TaskSettler(Protocol):
    """How a task's `settle` ends requests. `outputs` is what `settle` was given, to be handed on."""

    def end(self, row: int, outputs: Any, part: Any) -> None:
        """End the request of `row`; `part` goes to the front half."""
        ...


class Task(ABC):
    """Base of engine halves. Torch-free, without state of requests; called by the engine's thread.

    Attributes:
        name: Of the task.
        part: Type of what a request brings in `Add.parts`; None: nothing.
        decodes: Whether a request gets tokens one by one, each of which the next one follows from. Then short steps
            are worth their price, and what is sampled may be constrained. A plugin's does not.
        whole_prompts: Whether a prompt runs in one step, never in pieces.
        step_tokens: Budget of a step that suits it; None: the platform's.
        shares_prefixes: Whether a request may stand on the keys and values of another one's equal beginning.
    """

    name: ClassVar[str]
    part: ClassVar[type | None] = None
    decodes: ClassVar[bool] = False
    whole_prompts: ClassVar[bool] = False
    step_tokens: ClassVar[int | None] = None
    shares_prefixes: bool = True

    def __init__(self, setup: TaskSetup) -> None:
        return

    def limits(self, limits: L) -> L:
        """Return the engine's limits as this task needs them: `dataclasses.replace` of them."""
        return limits

    def longest_chunk(self, limits: StepLimits) -> int:
        """Return the most tokens of one request in a step under `limits`, which are the task's own."""
        return limits.max_num_batched_tokens if self.whole_prompts else limits.longest_chunk

    def accept(self, request: TaskRequest, max_model_len: int) -> int:
        """Return how many tokens `request` has at its end; all but the last are computed on, and take KV blocks.

        As it is, a request is its prompt and one result, which counts as a token. May set `request.reusable`.

        Raises:
            ValueError: It can never run.
        """
        check_length(request, max_model_len)
        return len(request.prompt) + 1

    def row_parts(self, request: TaskRequest) -> dict[str, Any]:
        """Return the `NewRow.parts` of a request: what it brought for this task, if it did."""
        return {self.name: request.parts[self.name]} if self.name in request.parts else {}

    @abstractmethod
    def settle(
        self, settler: TaskSettler, step: SettledStep, alive: np.ndarray, result: StepResult, outputs: Any
    ) -> None:
        """End the requests that the result of a step is the end of. A step without rows has no result of the task.

        Args:
            settler: Whose `end` does it.
            alive: `(rows,)` bool, whether each of the plan's rows still belongs to the request it was planned for.
            outputs: What `end` adds to.
        """


def check_length(request: StagedRequest, longest: int) -> None:
    """Raise `ValueError` for a prompt that is empty or longer than `longest` tokens."""
    if not 0 < len(request.prompt) <= longest:
        raise ValueError(f"the prompt has {len(request.prompt)} tokens; 1 to {longest} are possible here")
