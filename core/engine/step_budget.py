"""How many tokens a step gets, and how many of them prompts.

A budget that the user set is a limit. One that the platform advises says where products run at full speed, and is
treated as such: decoding rows, which every step has, come on top of it, and a prompt of which little would be left is
completed. Its first token would otherwise wait for one more step, and the step cost nearly what it costs now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.api.tasks import StepLimits

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig


@dataclass(frozen=True, slots=True)
class Limits(StepLimits):
    """Limits of one step, as the scheduler keeps to them."""

    @classmethod
    def of(cls, config: EngineConfig) -> Limits:
        """Return what the configuration says."""
        options = config.options.scheduler
        budget, soft_budget = config.step_tokens, options.max_num_batched_tokens is None
        return cls(
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=budget,
            max_chunk=options.max_chunk or (config.max_model_len if soft_budget else budget),
            max_model_len=config.max_model_len,
            soft_budget=soft_budget,
        )

    def share(self, prompts: int) -> int:
        """Return how many of `prompts` tokens that wait for a step should run in the next one.

        Half of them: a step has a fixed cost, which speaks for few steps, and nobody in it gets a token before it ends,
        which speaks for many. Never less than half the budget, below which the fixed cost dominates.
        """
        budget = self.max_num_batched_tokens
        return min(max(prompts, budget) // 2, budget)


def shared_out(need: np.ndarray, budget: int, slack: int) -> np.ndarray:
    """Give each row, in turn, what it needs until `budget` is spent.

    Args:
        need: `(n,)` tokens.
        slack: The row at which the budget ends gets all it needs if that is at most so many tokens more.
    """
    given: np.ndarray = np.minimum(np.maximum(budget - (np.cumsum(need) - need), 0), need)
    if slack:
        last = (given > 0) & (need - given <= slack)
        given[last] = need[last]
    return given
