"""Scheduler policies: order of admission, and who gives way when memory runs out.

The scheduler itself is core's; a policy answers its two questions. A policy may answer two more: a class with methods
`may_admit` and `chunk` as in `AdmissionPolicy` and `ChunkPolicy` is asked; one without them costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from core.api.requests import Caller


class RequestView(Protocol):
    """View of a request for scheduling policies.

    Attributes:
        priority: Smaller runs earlier.
        arrival: Order of arrival, strictly increasing.
        num_prompt: Prompt length in tokens.
        num_computed: Tokens whose KV is computed or scheduled.
        caller: Who sent it.
    """

    @property
    def priority(self) -> int: ...

    @property
    def arrival(self) -> int: ...

    @property
    def num_prompt(self) -> int: ...

    @property
    def num_computed(self) -> int: ...

    @property
    def caller(self) -> Caller: ...


class SchedulerPolicy(Protocol):
    """Runtime of a `SchedulerPolicySpec`."""

    def key(self, request: RequestView) -> tuple[int, ...]:
        """Sort key among the waiting: the smallest is admitted first. Fixed for the life of a request."""
        ...

    def victim(self, running: Sequence[RequestView]) -> int:
        """Return the index in `running` (admission order, not empty) of the request to preempt."""
        ...


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """The scheduler at the moment of an admission.

    Attributes:
        running, waiting: Requests.
        blocks_free, blocks_total: KV blocks.
        budget: Tokens of this step that are not given out yet.
    """

    running: int
    waiting: int
    blocks_free: int
    blocks_total: int
    budget: int


class AdmissionPolicy(Protocol):
    """Optional part of a policy: when to stop admitting."""

    def may_admit(self, request: RequestView, state: SchedulerState) -> bool:
        """Say whether `request`, first in line, may be admitted now; on False nobody is admitted in this step.

        It is asked again in the next step. A policy that refuses while nothing runs holds the engine still.
        """
        ...


class ChunkPolicy(Protocol):
    """Optional part of a policy: how much of a prompt runs at once."""

    def chunk(self, request: RequestView, budget: int) -> int:
        """Return how many tokens of `request`'s prompt may run in this step; below 1 counts as 1.

        Args:
            budget: What the step's limits would give it. More than that is never given.
        """
        ...
