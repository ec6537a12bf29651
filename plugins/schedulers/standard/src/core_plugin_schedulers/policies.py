"""The two policies: order of admission, and who gives way when memory runs out."""

from __future__ import annotations

from collections.abc import Sequence

from core.api.schedulers import RequestView


class FirstComeFirstServed:
    """Requests are admitted in order of arrival, and the latest arrival gives way."""

    def key(self, request: RequestView) -> tuple[int, ...]:
        """Return the sort key among the waiting."""
        return (request.arrival,)

    def victim(self, running: Sequence[RequestView]) -> int:
        """Return the index of the latest arrival: the least work is thrown away, and the oldest always finishes."""
        return max(range(len(running)), key=lambda index: running[index].arrival)


class PriorityOrder:
    """A smaller priority value is admitted earlier and gives way later; equal ones in order of arrival."""

    def key(self, request: RequestView) -> tuple[int, ...]:
        """Return the sort key among the waiting."""
        return (request.priority, request.arrival)

    def victim(self, running: Sequence[RequestView]) -> int:
        """Return the index of the least urgent request, the latest arrival among equals."""
        return max(range(len(running)), key=lambda index: self.key(running[index]))
