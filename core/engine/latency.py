"""Prompts beside requests that are being answered: how many of their tokens run in a step.

Whoever reads an answer waits for the whole step that brings its next token. So a step in which somebody decodes takes
as many prompt tokens as let it end within a target (`--max-itl-ms`), going by what earlier steps cost. A prompt always
advances by a block at least, however long that takes.
"""

from __future__ import annotations

from core.api.steps import StepPlan, StepResult
from core.engine.step_costs import StepCosts, StepWork

AIM = 0.95
"""Share of the target that a step is planned to take; the rest is for messages and their delivery."""

FINE, COARSE = 8, 8
"""A chunk ends at a block's end if that shortens it by at most one `COARSE`th, else it is a multiple of `FINE`."""


class LatencyTarget:
    """Keeps steps with decoding rows within a target.

    Args:
        target: Seconds.
        block_size: Tokens of a KV block.
    """

    def __init__(self, target: float, block_size: int) -> None:
        self._target, self._block_size = target, block_size
        self._costs = StepCosts()

    def note(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """A step took so long."""
        self._costs.note(StepWork.of(plan, result), seconds)

    def allowance(self, decodes: int, context: int) -> Allowance:
        """Return what prompts may take of the next step.

        Args:
            decodes: Rows that decode in it.
            context: Tokens that these attend to.
        """
        work = StepWork(decodes=decodes, context=context)
        return Allowance(self._costs, work, AIM * self._target, self._block_size)


class Allowance:
    """Budget that one step has left for prompts.

    Args:
        work: What runs in it already.
        seconds: How long it may take.
        block_size: Tokens of a KV block; the first prompt gets as many in any case.
    """

    def __init__(self, costs: StepCosts, work: StepWork, seconds: float, block_size: int) -> None:
        self._costs, self._work, self._seconds, self._block_size = costs, work, seconds, block_size

    def fits(self, start: int, rest: int, *, scored: bool) -> int:
        """Return how many of the next `rest` tokens of a prompt may run; 0 if it has to wait for another step.

        A prompt of which at most an eighth more would be left is completed.

        Args:
            start: Position of the first of them.
            scored: Whether log-probabilities of the prompt are wanted.
        """
        most = self._most(start, rest, scored=scored)
        if rest - most <= most // COARSE:
            return rest
        block = self._block_size
        aligned = (start + most) // block * block - start
        count = aligned if most - aligned <= most // COARSE else most // FINE * FINE
        return max(count, min(rest, block)) if not self._work.tokens else count

    def spend(self, start: int, count: int, *, scored: bool) -> None:
        """Account for `count` tokens of a prompt that run."""
        self._work = self._work.with_prompt(start, count, scored=scored)

    def _most(self, start: int, rest: int, *, scored: bool) -> int:
        """Return the most tokens with which the step ends in time."""
        if not self._costs.known:
            return 0
        if self._ends_in_time(start, rest, scored=scored):
            return rest
        least, most = 0, rest - 1
        while least < most:
            middle = (least + most + 1) // 2
            if self._ends_in_time(start, middle, scored=scored):
                least = middle
            else:
                most = middle - 1
        return least

    def _ends_in_time(self, start: int, count: int, *, scored: bool) -> bool:
        return self._costs.within(self._work.with_prompt(start, count, scored=scored), self._seconds)
