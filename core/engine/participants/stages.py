"""The moments of an engine's participants, bound once: what nobody overrides costs one look at an empty tuple."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from core.api.errors import EngineError, PluginError
from core.api.participants import Participant, Stat
from core.api.steps import StepPlan, StepResult
from core.api.wire import restored
from core.engine.participants.moments import Instead, end_all, finished_part, guarded_moment, late_part, spoil
from core.engine.parts import require_kind
from core.plugins.drivers import describe
from core.plugins.faults import Faults

logger = logging.getLogger(__name__)

MOST_STATS = 64
"""Most figures of one participant: each is a time series of whoever reads `/metrics`."""


class Stages:
    """Bound moments of the participants, in their order, for the scheduler, the settler and the loop.

    Args:
        faults: By name of a participant, what accounts for the exceptions of its plugin. Those of a participant
            without an entry are not caught here.
        constraining: Names of those without which rows could get tokens that they may not have: no step whose plan or
            tokens one of them failed at goes on, its requests end.
    """

    def __init__(
        self,
        participants: Sequence[Participant] = (),
        faults: Mapping[str, Faults] | None = None,
        constraining: frozenset[str] = frozenset(),
    ) -> None:
        self.participants = tuple(participants)
        self._faults = dict(faults or {})
        self._constraining = constraining
        self._unfit: PluginError | None = None
        self._ordered: dict[str, list[int]] = {}  # blocks that plugins are to fill with the plan that follows, by name
        self.arrive = self._bound("arrive")
        self.admit = self._bound("admit")
        self.supply = tuple(zip(self._bound("supply"), self._bound("place", like="supply"), strict=True))
        self.publish = self._bound("publish")
        self.run = self._bound("run")
        self.leave = self._bound("leave")
        self.pending = self._bound("pending")
        proposing = any(one.proposes for one in self.participants)
        self.drafts = self._bound("drafts") if proposing else ()
        self.plan = self._bound("plan", also="supply")
        self.settle = self._bound("settle")
        self.finished = tuple(zip(self._names("finished"), self._bound("finished"), strict=True))
        self.finish = self._bound("finish")
        self.reset = self._bound("reset")
        self._late = dict(zip(self._names("late"), self._bound("late"), strict=True))
        self._collect = self._bound("collect")

    @property
    def added(self) -> dict[str, type | None]:
        """The types of the parts that requests may bring, by name of the participant."""
        return {one.name: one.parts.add for one in self.participants}

    def joined_calls(self, own: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return `own` calls and those of the participants. Raises `PluginError` CORE-P181 for a name that is taken."""
        calls = dict(own)
        for participant in self.participants:
            for name, call in self._one(participant, "calls")().items():
                if name in calls:
                    text = f"participant '{participant.name}' offers a call '{name}', which exists already."
                    raise PluginError("CORE-P181", text)
                calls[name] = call
        return calls

    def stats(self) -> dict[str, dict[str, Stat]]:
        """Return the figures of the participants that have some, by name; at most `MOST_STATS` of each."""
        given = zip(self._names("stats"), self._bound("stats"), strict=True)
        return {name: dict(islice(stats().items(), MOST_STATS)) for name, stats in given}

    def late(self, plan: StepPlan, alive: np.ndarray) -> dict[str, Any]:
        """Return the late parts of a launched step, by name.

        Raises:
            PluginError: CORE-P108, a plugin cannot make its part: rows that it constrains would sample any token.
        """
        parts = {name: self._late[name](plan, alive) for name in plan.late}
        return {name: part for name, part in parts.items() if part is not None}

    def take_unfit(self) -> PluginError | None:
        """Return why the step that was planned last may not run: a constraining participant failed at it."""
        unfit, self._unfit = self._unfit, None
        return unfit

    def close(self) -> None:
        """Close all of them, whatever one of them raises."""
        for participant in self.participants:
            try:
                participant.close()
            except Exception as error:
                faults = self._faults.get(participant.name)
                owner = f"participant '{participant.name}'" if faults is None else faults.owner
                logger.warning("CORE-P161 %s: close() raised %s; it is taken for closed.", owner, describe(error))

    def collect(self, plan: StepPlan, result: StepResult) -> None:
        """Hand a step's result on, its parts as their types."""
        for participant in self.participants if result.parts else ():
            if participant.name in result.parts:
                self._restore(participant, result)
        for name, faults in self._faults.items() if result.faults else ():
            for fault in result.faults.get(name, ()):
                faults.note(fault)
        for collect in self._collect:
            collect(plan, result)

    def _restore(self, participant: Participant, result: StepResult) -> None:
        """Make a part its type. One that is none is a fault of its plugin."""
        part, faults = result.parts.pop(participant.name), self._faults.get(participant.name)
        try:
            result.parts[participant.name] = restored(part, participant.parts.result, participant.name)
        except EngineError as error:
            if faults is None:
                raise
            faults.note(str(error))

    def _overriding(self, moment: str) -> list[Participant]:
        base = getattr(Participant, moment)
        return [one for one in self.participants if getattr(type(one), moment) is not base]

    def _names(self, moment: str) -> list[str]:
        return [one.name for one in self._overriding(moment)]

    def _bound(self, moment: str, *, like: str = "", also: str = "") -> tuple[Callable[..., Any], ...]:
        """Return the bound methods of those who override `moment` or `also`; or `like`, in its place."""
        names = [like or moment, *([also] if also else [])]
        overriding = [one for name in names for one in self._overriding(name)]
        return tuple(self._one(one, moment) for one in self.participants if one in overriding)

    def _one(self, participant: Participant, moment: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(participant, moment)
        faults = self._faults.get(participant.name)
        if faults is None:
            return method
        typed: Mapping[str, Callable[..., Any]] = {
            "place": self._placed,
            "plan": self._planned,
            "late": late_part,
            "finished": finished_part,
        }
        held = partial(typed[moment], participant, method) if moment in typed else method
        constraining = participant.name in self._constraining
        return guarded_moment(held, moment, faults, self._instead.get(moment) if constraining else None)

    @property
    def _instead(self) -> Mapping[str, Instead]:
        """Handling of a constraining participant that fails."""
        before = dict.fromkeys(("run", "leave", "drafts", "plan", "reset"), self._stop)
        return {**before, "collect": spoil, "settle": end_all}

    def _stop(self, error: PluginError, *_: Any) -> None:
        """Let the step that is being planned, or is next, not run."""
        self._unfit = self._unfit or error

    def _placed(self, participant: Participant, method: Callable[..., Any], request: Any, refs: Any) -> bool:
        """Let a plugin order blocks, and remember which: they are lost if it loses sight of them."""
        placed = bool(method(request, refs))
        if placed:
            self._ordered.setdefault(participant.name, []).extend(block for ref in refs for block in ref.held)
        return placed

    def _planned(self, participant: Participant, method: Callable[..., Any], plan: StepPlan) -> None:
        """Let a plugin add to a plan. What it leaves there when it fails is withdrawn: no step runs with half of it."""
        name = participant.name
        if ordered := self._ordered.pop(name, None):
            plan.loads[name] = ordered
        try:
            method(plan)
            if (part := plan.parts.get(name)) is not None:
                require_kind(part, participant.parts.plan, name)
            if name in plan.late and type(participant).late is Participant.late:
                raise TypeError("it announces a late part and has no method late")
        except Exception:
            plan.parts.pop(name, None)
            plan.late[:] = [one for one in plan.late if one != name]
            raise
