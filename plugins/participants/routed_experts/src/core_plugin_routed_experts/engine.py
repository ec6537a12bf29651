"""The engine half: gathers the experts of each request, and asks for counts while steps run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from core.api.participants import EngineSetup, Participant, StagedRequest, Stat
from core_plugin_routed_experts.parts import PARTS, Asked, Orders, Report, Routed

if TYPE_CHECKING:
    from core.api.participants import StepPlan, StepResult

SECONDS = 1.0
"""Between two looks at the counts while steps run."""


class Gathered:
    """Experts of one request, as far as they are known.

    Attributes:
        start: First token that is wanted.
        tokens: How many tokens it has.
        ids: `(at least tokens, layers, k)`, by position; None before the first step.
    """

    def __init__(self, request: StagedRequest, asked: Asked) -> None:
        self.start = asked.start
        self.tokens = len(request.prompt) + len(request.generated)
        self.ids: np.ndarray | None = None

    def write(self, start: int, ids: np.ndarray) -> None:
        """Keep the experts of tokens from position `start` on; what was known of these positions is replaced."""
        end = start + len(ids)
        room = 0 if self.ids is None else len(self.ids)
        if end > room:
            grown = np.zeros((max(end, 2 * room), *ids.shape[1:]), ids.dtype)
            if self.ids is not None:
                grown[:room] = self.ids
            self.ids = grown
        if self.ids is not None:
            self.ids[start:end] = ids

    def routed(self) -> Routed | None:
        """Return the experts of all tokens but the last, which no step has read; None where there are none."""
        if self.ids is None:
            return None
        found = self.ids[self.start : self.tokens - 1]
        layers, top_k = found.shape[1:]
        return Routed(found.tobytes(), (len(found), layers, top_k), found.dtype.name)


class RoutedExperts(Participant):
    """Has the worker half send the experts of requests that want them."""

    parts = PARTS

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        self._gathered: dict[int, Gathered] = {}
        self._begin: dict[int, int] = {}  # handle -> row, of what runs from the next step on
        self._counts = bool(setup.options["load"])
        self._stale = False  # steps ran since the counts were sent
        self._asked = 0.0
        self._load: dict[str, list[int]] = {}

    def run(self, request: StagedRequest) -> None:
        """Have its experts sent from now on, from the beginning: those of a cached prefix as well."""
        asked = request.parts.get(self.name)
        if asked is not None:
            self._gathered.setdefault(request.handle, Gathered(request, asked))
            self._begin[request.handle] = request.row

    def leave(self, request: StagedRequest) -> None:
        """It does not run in the next step."""
        self._begin.pop(request.handle, None)

    def pending(self) -> bool:
        """Return whether counts are owed: the last ones before the engine rests."""
        return self._stale

    def plan(self, plan: StepPlan) -> None:
        """Order what the next step is to send."""
        running = len(plan.rows) > 0
        due = self._counts and (monotonic() - self._asked >= SECONDS if running else self._stale)
        if self._begin or due:
            plan.parts[self.name] = Orders(list(self._begin.values()), list(self._begin), due)
            self._begin = {}
        if due:
            self._asked = monotonic()
        self._stale = self._counts and running

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Keep what the worker half sent."""
        report: Report | None = result.parts.get(self.name)
        if report is None:
            return
        if report.load is not None:
            self._load = {f"load.{layer}": row.tolist() for layer, row in zip(report.layers, report.load, strict=True)}
        ids = np.frombuffer(report.ids, report.dtype).reshape(-1, *report.shape)
        place = 0
        for handle, start, count in zip(report.handles, report.starts, report.counts, strict=True):
            gathered = self._gathered.get(handle)
            if gathered is not None:
                gathered.write(start, ids[place : place + count])
            place += count

    def settle(self, requests: Sequence[StagedRequest | None], tokens: np.ndarray) -> Mapping[int, str]:
        """Count the tokens of each request."""
        for request in requests if self._gathered else ():
            gathered = None if request is None else self._gathered.get(request.handle)
            if gathered is not None:
                gathered.tokens += 1
        return {}

    def finished(self, request: StagedRequest) -> Routed | None:
        """Return the experts of its tokens."""
        gathered = self._gathered.get(request.handle)
        return None if gathered is None else gathered.routed()

    def finish(self, request: StagedRequest) -> None:
        """Forget it."""
        self._gathered.pop(request.handle, None)
        self._begin.pop(request.handle, None)

    def stats(self) -> Mapping[str, Stat]:
        """Return how many tokens each expert got since the start, a list for each layer."""
        return self._load
