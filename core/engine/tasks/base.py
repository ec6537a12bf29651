"""The engine half of a task: what an engine does for its requests, as the scheduler and the settler ask for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import numpy as np

    from core.api.steps import StepResult
    from core.config.resolved import EngineConfig
    from core.engine.messages import Outputs
    from core.engine.request import Request
    from core.engine.scheduler import Step
    from core.engine.settle import Settler
    from core.engine.step_budget import Limits


class Task(ABC):
    """Base of engine halves. Torch-free, without state of requests; called by the engine's thread.

    What a task's halves tell each other travels as parts under its name, beside those of participants:

        Add.parts          front end -> engine half, of the type `part`
        NewRow.parts       engine half -> worker half, when the request gets its row (`row_parts`)
        StepResult.parts   worker half -> engine half, read by `settle`
        Finished.parts     engine half -> front end (`Settler.end`)

    Attributes:
        name: Of the task, as in `core.tasks.TASKS`.
        part: Type of what a request brings in `Add.parts`; None: nothing.
        decodes: Whether a request gets tokens one by one, each of which the next one follows from. Then short steps
            are worth their price, and what is sampled may be constrained.
        whole_prompts: Whether a prompt runs in one step, never in pieces.
        step_tokens: Budget of a step that suits it; None: the platform's.
    """

    name: ClassVar[str]
    part: ClassVar[type | None] = None
    decodes: ClassVar[bool] = False
    whole_prompts: ClassVar[bool] = False
    step_tokens: ClassVar[int | None] = None

    def limits(self, limits: Limits) -> Limits:
        """Return the engine's limits as this task needs them."""
        return limits

    def longest_chunk(self, limits: Limits) -> int:
        """Return the most tokens of one request in a step under `limits`, which are the task's own."""
        return limits.max_num_batched_tokens if self.whole_prompts else limits.longest_chunk

    def shares_prefixes(self, config: EngineConfig) -> bool:
        """Return whether a request may stand on the keys and values of another one's equal beginning."""
        return True

    def accept(self, request: Request, max_model_len: int) -> int:
        """Return how many tokens `request` has at its end; all but the last are computed on, and take KV blocks.

        As it is, a request is its prompt and one result, which counts as a token. May set `request.reusable`.

        Raises:
            ValueError: It can never run.
        """
        check_length(request, max_model_len)
        return request.num_prompt + 1

    def row_parts(self, request: Request) -> dict[str, Any]:
        """Return the `NewRow.parts` of a request: what it brought for this task, if it did."""
        return {self.name: request.parts[self.name]} if self.name in request.parts else {}

    @abstractmethod
    def settle(self, settler: Settler, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs) -> None:
        """Apply the result of a step that has rows: add to `outputs`, and end the requests that are done.

        Args:
            settler: Whose `settle_tokens` and `end` do it.
            alive: `(rows,)` bool, whether each of the plan's rows still belongs to the request it was planned for.
        """


def check_length(request: Request, longest: int) -> None:
    """Raise `ValueError` for a prompt that is empty or longer than `longest` tokens."""
    if not 0 < request.num_prompt <= longest:
        raise ValueError(f"the prompt has {request.num_prompt} tokens; 1 to {longest} are possible here")
