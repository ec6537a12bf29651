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


NONE, DECODE, FULL = "none", "decode", "full"
"""Values of `--graphs` beside `auto`, which is `decode` of graphs that are captured with their memory, else `full`."""


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
    mode: str,
    decodes: bool,
    tokens: int,
) -> tuple[GraphedForward | None, str]:
    """Return the forward pass by a platform's graphs, None where it has none that fit, and why, for the start-up table.

    Args:
        mode: `--graphs`.
        decodes: The task runs steps of one token a row.
        tokens: Most of a step.

    Raises:
        PluginError: CORE-P233, what the platform offers is no graph facet.
    """
    if facet is None:
        return None, ""
    if not isinstance(facet, GraphFacet):
        wrong = f"its graphs are a {type(facet).__name__}, which is no core.api.GraphFacet"
        raise PluginError("CORE-P233", f"{loaded.owners.platform}: {wrong}.", hint="Report it to the plugin's author.")
    if mode == NONE:
        return None, "none: as --graphs says"
    if not loaded.graphs:
        return None, f"none: {loaded.owners.model} runs operation by operation"
    if not facet.fixed:
        return GraphedForward(facet, model.forward, loaded.owners, decodes=mode == DECODE), ""
    if not decodes:
        return None, "none: this task runs whole prompts"
    if loaded.replayable is None:
        return None, f"none: {loaded.owners.attention} makes no plans for them (feature `replayable`)"
    prompts = _without_prompts(loaded) if mode == FULL else ""
    most = tokens if mode == FULL and not prompts else 0
    parts = (facet, model.forward, loaded.owners, backend, loaded.replayable, rows)
    return FixedForward(*parts, tokens=most, prompts=prompts), ""


def _without_prompts(loaded: LoadedModel) -> str:
    """Return why no graph can hold a prompt; empty where one can."""
    if loaded.states:
        return f"{loaded.owners.model} keeps recurrent states, and a graph would keep the lengths of its rows"
    if not loaded.replays_prompts:
        return f"{loaded.owners.attention} makes no such plans (feature `replayable_prompts`)"
    return ""
