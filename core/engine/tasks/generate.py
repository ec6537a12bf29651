"""The task `generate`: tokens are sampled behind the prompt, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.tasks import Task, TaskSetup, check_length

if TYPE_CHECKING:
    import numpy as np

    from core.api.steps import StepResult
    from core.api.tasks import TaskRequest
    from core.engine.messages import Outputs
    from core.engine.scheduler import Step
    from core.engine.settle import Settler


_NOTHING = TaskSetup()


class Generate(Task):
    """Generates until a stop id, the request's `max_tokens` or the longest request."""

    name = "generate"
    decodes = True

    def __init__(self, setup: TaskSetup = _NOTHING) -> None:
        super().__init__(setup)

    def accept(self, request: TaskRequest, max_model_len: int) -> int:
        """Return the length of prompt and output."""
        check_length(request, max_model_len - 1)  # a token of output needs a place
        asked, prompt, generated = request.params.max_tokens, len(request.prompt), len(request.generated)
        limit = max_model_len if asked is None else min(max_model_len, prompt + asked)
        if prompt + generated >= limit:
            raise ValueError(f"{generated} tokens were generated before; no further one is possible")
        return limit

    def settle(  # type: ignore[override]  # a task of core's is given what core has
        self, settler: Settler, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs
    ) -> None:
        """Append the sampled tokens, and end what has stopped."""
        settler.settle_tokens(step, alive, result, outputs)
