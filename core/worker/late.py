"""Late rows: bound where they really stand, and what they gain by the drafts that turn out right.

An engine that launches ahead does not know how many drafts of the steps in flight are kept. It says how many tokens a
row may run at most; where the row starts, and what it runs, is decided here, when all steps before have run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from core.api.steps import StepPlan
from core.worker.rows import RowTable

Ask = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Has drafts written for `rows (n,)` that hold `known (n,)` tokens, at most so many each; returns how many, `(n,)`."""


def bound(plan: StepPlan, table: RowTable, single: np.ndarray, ask: Ask) -> StepPlan:
    """Return a plan with drafts as it runs: every row exactly as said, `drafts` those that are there.

    Args:
        single: `(max_rows,)` bool, rows that run no draft whatever the plan says.
    """
    drafts = np.zeros(0, np.int32) if plan.drafts is None else plan.drafts
    late = drafts >= 0
    rows = plan.rows.astype(np.int64)
    known = table.known[rows]
    if drafts.max() <= 0 and (plan.starts == known - 1)[late].all():
        return plan  # nobody drafts, and nobody did in the steps before
    most = np.where(late & ~single[rows], drafts, 0)
    asked = np.flatnonzero(most > 0)
    run = np.where(late, 0, -1).astype(np.int32)
    if len(asked):
        run[asked] = ask(rows[asked], known[asked], most[asked])
    return replace(
        plan,
        starts=np.where(late, known - 1, plan.starts).astype(np.int32),
        counts=np.where(late, run + 1, plan.counts).astype(np.int32),
        output_counts=np.where(late, known - table.prompt_lens[rows], plan.output_counts).astype(np.int32),
        drafts=run,
    )


def verified(plan: StepPlan) -> np.ndarray:
    """Return how many positions each sampling row of a bound plan samples at, `(samples.sum(),)`; a late one at all."""
    drafts = np.zeros(len(plan.rows), np.int32) if plan.drafts is None else plan.drafts
    counts: np.ndarray = np.maximum(drafts[plan.samples], 0) + 1
    return counts


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a step samples. Entry `i` of every array is the i-th position; those of a row follow each other.

    Attributes:
        places: `(n,)` index into the plan's rows.
        rows: `(n,)` int64.
        known: `(n,)` int64, tokens of the row before the sampled one, drafts included.
        outputs: `(n,)` int64, those of them that are output.
        ahead: `(n,)` int64, those of them that are drafts; None: no position has any.
    """

    places: np.ndarray
    rows: np.ndarray
    known: np.ndarray
    outputs: np.ndarray
    ahead: np.ndarray | None = None

    def take(self, kept: np.ndarray) -> Positions:
        """Return the `kept` positions, whose drafts are drafts no more."""
        return Positions(self.places[kept], self.rows[kept], self.known[kept], self.outputs[kept])


def positions(plan: StepPlan, sampling: np.ndarray, seq_lens: np.ndarray) -> Positions:
    """Return where a bound plan samples.

    Args:
        sampling: Index of the plan's rows that sample.
        seq_lens: `(rows,)` tokens of each row with what it runs.
    """
    rows, known = plan.rows[sampling].astype(np.int64), seq_lens[sampling].astype(np.int64)
    outputs = plan.output_counts[sampling].astype(np.int64)
    if plan.drafts is None or not (plan.drafts > 0).any():
        return Positions(sampling, rows, known, outputs)
    counts = np.maximum(plan.drafts[sampling], 0) + 1
    ahead = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    of = np.repeat(np.arange(len(rows)), counts)
    return Positions(sampling[of], rows[of], (known - counts + 1)[of] + ahead, outputs[of] + ahead, ahead)


def gains(at: Positions, agrees: np.ndarray, failed: Iterable[int], constrained: Iterable[int]) -> np.ndarray:
    """Return how many tokens each sampling row gained, `(samples.sum(),)` int32: up to the first draft that is wrong.

    Args:
        agrees: `(n,)` bool, whether the draft behind each position is what was sampled there.
        failed: Positions without a token: the row gains what comes before; its next step will fail at its first one.
        constrained: Rows whose allowed tokens are known for their first position alone.
    """
    ahead = np.zeros(len(at.rows), np.int64) if at.ahead is None else at.ahead
    firsts = np.flatnonzero(ahead == 0)
    ends = ~agrees | np.isin(at.rows, list(constrained))
    ends[np.append(firsts[1:], len(ends)) - 1] = True
    for i in failed:
        if ahead[i] > 0:
            ends[i - 1] = True
    places = np.flatnonzero(ends)
    gained: np.ndarray = places[np.searchsorted(places, firsts)] - firsts + 1
    return gained.astype(np.int32)
