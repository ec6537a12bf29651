"""Forward passes through a platform's graph facet."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from core.api.facets import Forward, Graph, GraphFacet, StepShape

if TYPE_CHECKING:
    from torch import Tensor

    from core.worker.inputs import StepInputs


class GraphedForward:
    """Runs each step with the graph of its shape, capturing it the first time.

    Args:
        forward: The model's own forward pass.
    """

    def __init__(self, facet: GraphFacet, forward: Forward) -> None:
        self._facet, self._forward = facet, forward
        self._graphs: dict[Hashable, Graph] = {}

    def __call__(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(tokens, hidden)`."""
        batch = step.batch
        shape = StepShape(len(step.token_ids), len(batch.seq_lens), batch.max_query_len, batch.max_seq_len)
        key = self._facet.key(shape)
        if key is None:
            return self._forward(step)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._facet.capture(self._forward, step)
        return graph.replay(step)

    def forget(self) -> None:
        """Drop all graphs: they read weights that are no longer the model's."""
        self._graphs.clear()
