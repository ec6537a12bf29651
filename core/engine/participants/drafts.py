"""Speculative decoding in the engine: how many drafts a row may run, by how many of them were right of late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.api.participants import Participant, Parts, StagedRequest, Stat
from core.api.steps import StepPlan, StepResult
from core.plugins.faults import Faults

WEIGHT = 1 / 8
"""Share of the latest step in a row's average of accepted drafts."""

WORTH = 0.25
"""Accepted drafts a step, on average, below which a row runs none."""

PROBED = 32
"""Steps without drafts after which a row tries again."""


@dataclass(slots=True)
class Drafted:
    """The worker half's part of a result: rows that ran drafts, and how many, each `(n,)` int32."""

    rows: np.ndarray
    counts: np.ndarray


class DraftsEngineHalf(Participant):
    """Decides how many drafts each row may run, and counts what became of them.

    A row may run twice as many as it kept on average, so that it finds out about more; below `WORTH` it runs none, but
    for a trial every `PROBED` steps. Text that nobody can guess costs next to nothing that way.

    Args:
        most: Most drafts of a row in a step.
        faults: Those of the drafter; once it is switched off, its worker half is closed and no row runs drafts.
    """

    parts = Parts(result=Drafted)
    proposes = True

    def __init__(self, name: str, most: int, max_rows: int, faults: Faults) -> None:
        self.name, self.most, self.faults = name, most, faults
        self._mean = np.zeros(max_rows)
        self._idle = np.zeros(max_rows, np.int64)
        self._open = True
        self._drafts = self._tokens = 0
        self._accepted = np.zeros(most, np.int64)

    def run(self, request: StagedRequest) -> None:
        """Expect well of a row that begins."""
        self._mean[request.row], self._idle[request.row] = self.most / 2, 0

    def drafts(self, rows: np.ndarray, room: np.ndarray) -> np.ndarray:
        """Return how many drafts each row may run."""
        if self.faults.off:
            return np.zeros_like(room)
        mean = self._mean[rows]
        poor = mean < WORTH
        wanted = np.ceil(2 * mean)
        wanted[poor] = 0
        if poor.any():
            self._idle[rows[poor]] += 1
            trial = poor & (self._idle[rows] > PROBED)
            wanted[trial] = self.most
            self._idle[rows[trial]] = 0
        bounds: np.ndarray = np.minimum(np.minimum(wanted, self.most), room).astype(np.int64)
        return bounds

    def plan(self, plan: StepPlan) -> None:
        """Close the worker half of a drafter that was switched off."""
        if self.faults.off and self._open:
            plan.leaving.append(self.name)
            self._open = False

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Account for faults, and for the drafts that a step ran."""
        for fault in result.faults.get(self.name, ()):
            self.faults.note(fault)
        if plan.drafts is None or plan.drafts.max(initial=0) <= 0:
            return
        asked = plan.drafts > 0
        gained = np.ones(len(plan.rows), np.int64)
        if result.counts is not None:
            gained[plan.samples] = result.counts
        rows, accepted = plan.rows[asked], gained[asked] - 1
        self._mean[rows] += WEIGHT * (accepted - self._mean[rows])
        part: Drafted | None = result.parts.get(self.name)
        if part is not None:
            self._drafts += int(np.count_nonzero(part.counts))
            self._tokens += int(part.counts.sum())
            self._accepted += (accepted[:, None] > np.arange(self.most)).sum(axis=0)

    def stats(self) -> dict[str, Stat]:
        """Return how many drafts of how many tokens were run, and how many of these were kept, in all and by place."""
        return {
            "drafts": self._drafts,
            "draft_tokens": self._tokens,
            "accepted_tokens": int(self._accepted.sum()),
            "accepted_by_position": self._accepted.tolist(),
        }
