"""Scheduler policies: order of admission, and who gives way when memory runs out.

The scheduler itself is core's; a policy answers its two questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class RequestView(Protocol):
    """What a policy may read of a request.

    Attributes:
        priority: Smaller runs earlier.
        arrival: Order of arrival, strictly increasing.
        num_prompt: Prompt length in tokens.
        num_computed: Tokens whose KV is computed or scheduled.
    """

    @property
    def priority(self) -> int: ...

    @property
    def arrival(self) -> int: ...

    @property
    def num_prompt(self) -> int: ...

    @property
    def num_computed(self) -> int: ...


class SchedulerPolicy(Protocol):
    """Runtime of a `SchedulerPolicySpec`."""

    def key(self, request: RequestView) -> tuple[int, ...]:
        """Sort key among the waiting: the smallest is admitted first. Fixed for the life of a request."""
        ...

    def victim(self, running: Sequence[RequestView]) -> int:
        """Return the index in `running` (admission order, not empty) of the request to preempt."""
        ...
