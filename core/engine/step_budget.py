"""How many tokens a step gets, and how many of them prompts.

A budget that the user set is a limit. One that the platform advises says where products run at full speed, and is
treated as such: decoding rows, which every step has, come on top of it, and a prompt of which little would be left is
completed. Its first token would otherwise wait for one more step, and the step cost nearly what it costs now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from core.config.resolved import EngineConfig


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one step.

    Attributes:
        max_num_seqs: Requests that run at once.
        max_num_batched_tokens: Tokens of a step.
        max_chunk: Most tokens of one request in a step.
        max_model_len: Longest request, prompt and output.
        advised: The tokens of a step are advice: decoding rows are not counted, and `slack` more complete a prompt.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    max_chunk: int
    max_model_len: int
    advised: bool = False

    @classmethod
    def of(cls, config: EngineConfig) -> Limits:
        """Return what the configuration says."""
        options = config.options.scheduler
        budget, advised = config.step_tokens, options.max_num_batched_tokens is None
        return cls(
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=budget,
            max_chunk=options.max_chunk or (config.max_model_len if advised else budget),
            max_model_len=config.max_model_len,
            advised=advised,
        )

    @property
    def slack(self) -> int:
        """Tokens by which a step may exceed its budget for the end of a prompt."""
        return self.max_num_batched_tokens // 8 if self.advised else 0

    @property
    def longest_chunk(self) -> int:
        """Most tokens of one request in a step, whatever its budget."""
        return min(self.max_chunk, self.max_num_batched_tokens + self.slack)

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
