"""The task `generate`: tokens are sampled behind the prompt, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.engine.tasks.base import Task, check_length

if TYPE_CHECKING:
    import numpy as np

    from core.api.steps import StepResult
    from core.engine.messages import Outputs
    from core.engine.request import Request
    from core.engine.scheduler import Step
    from core.engine.settle import Settler


class Generate(Task):
    """Generates until a stop id, the request's `max_tokens` or the longest request."""

    name = "generate"
    decodes = True

    def accept(self, request: Request, max_model_len: int) -> int:
        """Return the length of prompt and output."""
        check_length(request, max_model_len - 1)  # a token of output needs a place
        asked = request.params.max_tokens
        limit = max_model_len if asked is None else min(max_model_len, request.num_prompt + asked)
        if request.num_given >= limit:
            raise ValueError(f"{len(request.generated)} tokens were generated before; no further one is possible")
        return limit

    def settle(self, settler: Settler, step: Step, alive: np.ndarray, result: StepResult, outputs: Outputs) -> None:
        """Append the sampled tokens, and end what has stopped."""
        settler.settle_tokens(step, alive, result, outputs)
