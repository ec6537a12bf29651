"""The waiting queue: a heap in the policy's order, with lazy removal."""

from __future__ import annotations

import heapq

from core.api.schedulers import SchedulerPolicy
from core.engine.request import Request, Status


class WaitingQueue:
    """Requests that are not running. A preempted request returns to where its key puts it.

    Attributes:
        tokens: Prompt tokens of all of them.
    """

    def __init__(self, policy: SchedulerPolicy) -> None:
        self._policy = policy
        self._heap: list[tuple[tuple[int, ...], int, Request]] = []
        self._size = 0
        self.tokens = 0
        self._held: list[Request] = []

    def __len__(self) -> int:
        return self._size

    def push(self, request: Request) -> None:
        """Put a request in line."""
        heapq.heappush(self._heap, (self._policy.key(request), request.arrival, request))
        self._size += 1
        self.tokens += request.num_prompt

    def peek(self) -> Request | None:
        """Return the next request to admit, or None."""
        while self._heap and self._heap[0][2].status is not Status.WAITING:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Request:
        """Remove and return what `peek` shows."""
        request = heapq.heappop(self._heap)[2]
        self._size -= 1
        self.tokens -= request.num_prompt
        return request

    def hold(self) -> None:
        """Set what `peek` shows aside until `resume`: it cannot be admitted yet, those behind it can."""
        self._held.append(heapq.heappop(self._heap)[2])

    def resume(self) -> None:
        """Put everything that was held back where its key wants it."""
        for request in self._held:
            if request.status is Status.WAITING:
                heapq.heappush(self._heap, (self._policy.key(request), request.arrival, request))
        self._held.clear()

    def discard(self, request: Request) -> None:
        """Account for a request that just ended while it waited; its entry is dropped when it surfaces."""
        self._size -= 1
        self.tokens -= request.num_prompt
