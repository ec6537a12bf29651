"""Which steps run by a platform's graphs, and why others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.facets import GraphFacet
from core.worker.fixed import FixedForward
from core.worker.graphs import GraphedForward

if TYPE_CHECKING:
    from core.worker.guarded import GuardedBackend, GuardedModel
    from core.worker.loader import LoadedModel
    from core.worker.rows import RowTable


def pads(facet: object) -> bool:
    """Say whether a platform's graphs run steps with rows of padding."""
    return isinstance(facet, GraphFacet) and facet.fixed


def graphs_for(
    facet: GraphFacet | None,
    loaded: LoadedModel,
    model: GuardedModel,
    backend: GuardedBackend,
    rows: RowTable,
    *,
    decodes: bool,
) -> tuple[GraphedForward | None, str]:
    """Return the forward pass by a platform's graphs, None where it has none that fit, and why, for the start-up table.

    Args:
        decodes: The task runs steps of one token a row.

    Raises:
        PluginError: CORE-P233, what the platform offers is no graph facet.
    """
    if facet is None:
        return None, ""
    if not isinstance(facet, GraphFacet):
        wrong = f"its graphs are a {type(facet).__name__}, which is no core.api.GraphFacet"
        raise PluginError("CORE-P233", f"{loaded.owners.platform}: {wrong}.", hint="Report it to the plugin's author.")
    if not loaded.graphs:
        return None, f"none: {loaded.owners.model} runs operation by operation"
    if not facet.fixed:
        return GraphedForward(facet, model.forward, loaded.owners), ""
    if not decodes:
        return None, "none: this task runs whole prompts"
    if loaded.replayable is None:
        return None, f"none: {loaded.owners.attention} makes no plans for them (feature `replayable`)"
    return FixedForward(facet, model.forward, loaded.owners, backend, loaded.replayable, rows), ""
