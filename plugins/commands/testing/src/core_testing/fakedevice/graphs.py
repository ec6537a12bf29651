"""The fake device's graphs: operations recorded by a capture, and carried out again by each replay."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from core.api.facets import Forward, GraphFacet
from core.api.steps import StepShape
from core_testing.fakedevice.deferred import Deferred, Shapes, Work

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.layers import StepInputs
    from core_testing.fakedevice.queue import LateQueue


class RecordingGraphs(GraphFacet):
    """Captures steps of up to 1, 2, 4, ... rows, and of some numbers of tokens, in memory that stays.

    Attributes:
        tokens: Of the steps with prompts that are captured.
        captured, replayed: Tokens of each capture, and of each replay.
    """

    fixed = True
    tokens: Sequence[int] = (8, 24)

    def __init__(self, queue: LateQueue) -> None:
        self._queue = queue
        self.captured: list[int] = []
        self.replayed: list[int] = []

    def key(self, shape: StepShape) -> Hashable | None:
        """Return nothing: all sizes are captured at the start."""
        return None

    def sizes(self, limits: StepShape) -> Sequence[StepShape]:
        """Return powers of two, and the largest."""
        rows = [1 << power for power in range(limits.num_rows.bit_length()) if 1 << power < limits.num_rows]
        return [StepShape(n, n, 1, limits.max_seq_len) for n in (*rows, limits.num_rows)]

    def mixed_sizes(self, limits: StepShape) -> Sequence[StepShape]:
        """Return those numbers of tokens that are no more than a step's."""
        few = [one for one in self.tokens if one <= limits.num_tokens]
        return [StepShape(one, min(one, limits.num_rows), one, limits.max_seq_len) for one in few]

    def capture(self, forward: Forward, step: StepInputs) -> RecordedGraph:
        """Record a forward pass; nothing of it is carried out."""
        work: list[Work] = []
        with Deferred(work.append, refuse, Shapes()):
            out = forward(step)
        self.captured.append(len(out))
        return RecordedGraph(self, work, out)

    def run(self, work: Sequence[Work], rows: int) -> None:
        """Enqueue recorded work."""
        self.replayed.append(rows)
        self._queue.enqueue(lambda: [one() for one in work])


class RecordedGraph:
    """A recorded forward pass."""

    def __init__(self, graphs: RecordingGraphs, work: Sequence[Work], out: Tensor) -> None:
        self._graphs, self._work, self._out = graphs, work, out

    def replay(self, step: StepInputs) -> Tensor:
        """Carry it out again on what its memory holds now."""
        self._graphs.run(self._work, len(self._out))
        return self._out


def refuse() -> None:
    """Refuse to wait while a graph is captured."""
    raise RuntimeError("the host waits for the device while a graph is captured")
