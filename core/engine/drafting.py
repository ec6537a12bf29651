"""Drafts in a plan: how many tokens decoding rows run behind their last one, and what a settled step gained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from core.api.steps import StepPlan, StepResult
from core.engine.rows import RequestTable

Drafts = Callable[[np.ndarray, np.ndarray], np.ndarray | None]
"""`Participant.drafts`."""


def drafts_wanted(
    moments: Sequence[Drafts], table: RequestTable, rows: np.ndarray, need: np.ndarray, max_chunk: int
) -> np.ndarray:
    """Return how many drafts each row may run, `(n,)`; 0 for those that do not decode.

    Args:
        need: `(n,)` tokens that each row runs in any case.
    """
    drafts = np.zeros_like(need)
    known = table.known[rows]
    decoding = np.flatnonzero((known - table.computed[rows] == 1) & (need == 1))
    if not len(decoding):
        return drafts
    chosen = rows[decoding]
    room = np.minimum(table.limit[chosen] - known[decoding], max_chunk) - 1
    bound = room
    for moment in moments:
        answer = moment(chosen, room)
        if answer is not None:
            bound = np.minimum(bound, answer)
    drafts[decoding] = np.maximum(bound, 0)
    return drafts


def undrafted(table: RequestTable, rows: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return `counts` without the drafts of decoding rows."""
    decoding = table.known[rows] - table.computed[rows] == 1
    plain: np.ndarray = np.where(decoding, np.minimum(counts, 1), counts)
    return plain


@dataclass(frozen=True, slots=True)
class Gained:
    """The tokens that a step's live rows gained, up to the end of each request.

    Attributes:
        rows: `(m,)` the row of each token; those of a row follow each other.
        tokens: `(m,)` int32.
        lengths: `(m,)` tokens that the row has with this one.
        places: `(m,)` where each stands in the step's result.
    """

    rows: np.ndarray
    tokens: np.ndarray
    lengths: np.ndarray
    places: np.ndarray

    def without(self, dropped: np.ndarray) -> Gained:
        """Return the others; `dropped` is `(m,)` bool."""
        if not dropped.any():
            return self
        kept = ~dropped
        return Gained(self.rows[kept], self.tokens[kept], self.lengths[kept], self.places[kept])


def gained(table: RequestTable, plan: StepPlan, rows: np.ndarray, result: StepResult, alive: np.ndarray) -> Gained:
    """Return what the rows of a step gained.

    Args:
        rows: `(n,)` the plan's rows, as intp.
        alive: `(n,)` bool: which of them are still what was planned.
    """
    rows, kept = rows[plan.samples], alive[plan.samples]
    if result.counts is None or len(result.tokens) == len(rows):
        if kept.all():
            return Gained(rows, result.tokens, table.settled[rows] + 1, np.arange(len(rows)))
        places, rows = np.flatnonzero(kept), rows[kept]
        return Gained(rows, result.tokens[places], table.settled[rows] + 1, places)
    counts = result.counts
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    places = np.flatnonzero(np.repeat(kept, counts))
    rows, firsts = np.repeat(rows, counts)[places], firsts[places]
    tokens = result.tokens[places]
    found = Gained(rows, tokens, table.settled[rows] + 1 + places - firsts, places)
    return found.without(_behind_end(table, found))


def _behind_end(table: RequestTable, found: Gained) -> np.ndarray:
    """Say which tokens stand behind the end of their request, `(m,)` bool: a stop id, or its limit."""
    over: np.ndarray = behind(table.stopped(found.rows, found.tokens), found.rows)
    over |= found.lengths > table.limit[found.rows]
    return over


def behind(marked: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Say which entries follow a `marked (m,)` one of the same row, `(m,)` bool; those of a row are neighbours."""
    before = np.cumsum(marked) - marked
    first = np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, bool)
    at_first = before[first][np.cumsum(first) - 1]
    after: np.ndarray = before > at_first
    return after


def settle_drafts(table: RequestTable, plan: StepPlan, result: StepResult, alive: np.ndarray) -> None:
    """Lower the counters of the live rows of a settled plan by the drafts that were refused, or not there."""
    if plan.drafts is None:
        return
    late = alive & (plan.drafts > 0)
    if late.any():
        counts = np.ones(len(plan.rows), np.int32)
        if result.counts is not None:
            counts[plan.samples] = result.counts
        rows, drafts = plan.rows[late], plan.drafts[late]
        table.unbind(rows, drafts, drafts + 1 - counts[late])
