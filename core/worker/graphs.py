"""Forward passes through a platform's graph facet."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, cast

from core.api.errors import PluginError
from core.api.facets import Forward, Graph, GraphFacet
from core.api.steps import StepShape
from core.layers.guard import PASSED, shown
from core.plugins.drivers import describe
from core.plugins.handed import GRAPH, Handed

if TYPE_CHECKING:
    from torch import Tensor

    from core.layers.guard import Owners
    from core.worker.inputs import Planner, StepInputs

Headed = tuple["Tensor", ...]
Head = Callable[["Tensor"], Headed]
"""Makes tensors of hidden states `(n, hidden)`, each `(n, ...)`."""


class GraphedForward:
    """Runs each step with the graph of its shape, capturing it the first time.

    Args:
        forward: The model's own forward pass.
        owners: Whose the platform and the model are, for errors.
        decodes: Only steps of one token a row run by graphs.

    Attributes:
        headed: What the head of `lead_to` made of the last step's hidden states; None: the graph ended with these, or
            there was none.
    """

    def __init__(self, facet: GraphFacet, forward: Forward, owners: Owners, *, decodes: bool = False) -> None:
        self._facet, self._forward, self._owners = facet, forward, owners
        self._handed = Handed(owners.platform)
        self._decodes = decodes
        self._graphs: dict[Hashable, Graph] = {}
        self.headed: Headed | None = None

    def __call__(self, step: StepInputs) -> Tensor:
        """Return the final hidden states, `(tokens, hidden)`.

        Raises:
            PluginError: CORE-P108, the facet raised; CORE-P171, what it gave is not of the step's size.
        """
        hidden: Any = None
        try:
            hidden = self._run(step)
            if hidden.shape[0] == len(step.token_ids):
                return cast("Tensor", hidden)
        except PASSED:
            raise
        except Exception as error:
            text = f"{self._owners.platform}: the graph of {self._owners.model} raised {describe(error)}."
            raise PluginError("CORE-P108", text) from error
        text = f"{self._owners.platform}: the graph of {self._owners.model} gave {shown(hidden)}"
        raise PluginError("CORE-P171", f"{text}; expected ({len(step.token_ids)}, hidden).")

    def lead_to(self, head: Head) -> None:
        """Have `head` captured behind the forward pass, where steps are captured in memory that stays."""

    def prepare(self) -> None:
        """Capture what is captured while the engine starts."""

    def planner(self, backend: Planner) -> Planner:
        """Return what plans attention for the steps of this forward pass: the backend."""
        return backend

    def describe(self) -> str:
        """Return one line for the start-up table; empty where there is nothing to say."""
        return ""

    def forget(self) -> None:
        """Drop all graphs: they read weights that are no longer the model's."""
        self._graphs.clear()

    def _capture(self, step: StepInputs) -> Graph:
        return self._handed.fit("capture()", self._facet.capture(self._forward, step), GRAPH)

    def _run(self, step: StepInputs) -> Tensor:
        batch = step.batch
        shape = StepShape(len(step.token_ids), len(batch.seq_lens), batch.max_query_len, batch.max_seq_len)
        key = None if self._decodes and shape.max_query_len > 1 else self._facet.key(shape)
        if key is None:
            return self._forward(step)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._capture(step)
        return graph.replay(step)
