"""The scheduling policy as the scheduler asks it: first come, first served takes the place of an answer that fails."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from core.api.schedulers import RequestView, SchedulerPolicy, SchedulerState

if TYPE_CHECKING:
    from core.plugins.faults import Faults


class GuardedPolicy:
    """A plugin's policy whose faults end neither a step nor a request.

    Attributes:
        may_admit, chunk: The policy's optional parts; None where it has none.
    """

    def __init__(self, policy: SchedulerPolicy, faults: Faults) -> None:
        self.faults = faults
        self._policy = policy
        self._admits: Callable[..., bool] | None = getattr(policy, "may_admit", None)
        self._chunk: Callable[..., int] | None = getattr(policy, "chunk", None)
        self.may_admit = self._ask_admission if self._admits is not None else None
        self.chunk = self._ask_chunk if self._chunk is not None else None

    def key(self, request: RequestView) -> tuple[int, ...]:
        """Return the policy's key, or the order of arrival."""
        try:
            found = tuple(self._policy.key(request))
            if not all(isfinite(part) for part in found):
                raise ValueError(f"{found!r} cannot be sorted")
            return found
        except Exception as error:
            self.faults.raised("key()", error)
            return (request.arrival,)

    def victim(self, running: Sequence[RequestView]) -> int:
        """Return the index of the policy's victim, or of the latest arrival."""
        try:
            index = operator.index(self._policy.victim(running))
            if not 0 <= index < len(running):
                raise IndexError(f"{index} is none of the {len(running)} running requests")
            return index
        except Exception as error:
            self.faults.raised("victim()", error)
            return max(range(len(running)), key=lambda at: running[at].arrival)

    def _ask_admission(self, request: RequestView, state: SchedulerState) -> bool:
        """Return the policy's word, or True."""
        assert self._admits is not None
        try:
            return bool(self._admits(request, state))
        except Exception as error:
            self.faults.raised("may_admit()", error)
            return True

    def _ask_chunk(self, request: RequestView, budget: int) -> int:
        """Return the policy's count within 1 to `budget`, or `budget`."""
        assert self._chunk is not None
        try:
            return max(1, min(operator.index(self._chunk(request, budget)), budget))
        except Exception as error:
            self.faults.raised("chunk()", error)
            return budget
