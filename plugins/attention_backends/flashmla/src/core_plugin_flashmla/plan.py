"""A step as FlashMLA computes it: every query is a row of its own, with all that it sees in the cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from core_plugin_accelerator.latents import Queries, queries_of
from core_plugin_accelerator.paged import OverPaged, PagedPlan
from flash_mla import get_mla_metadata

MOST_ROWS = 512
"""Queries of one call. The library takes memory for parts of contexts by their number: 170 MB for 512 of 128 heads."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries of one call, and how the library divides their work."""

    queries: Queries
    _divided: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    def divided(self, heads: int, *, anew: bool) -> tuple[Any, Any]:
        """Return how the library divides the work, in its own form, which depends on the lengths.

        Some releases compute it here, others in the first call that is given it.

        Args:
            anew: Do not use what was made before.
        """
        if anew or heads not in self._divided:
            self._divided[heads] = get_mla_metadata(self.queries.lengths, heads, 1)
        return self._divided[heads]


@dataclass(frozen=True, slots=True)
class MlaPlan(OverPaged):
    """One step.

    Attributes:
        paged: The step.
        pieces: All of its queries.
        fixed: Whether captured graphs read it: lengths change, and what follows from them is computed in the graph.
    """

    paged: PagedPlan
    pieces: list[Piece]
    fixed: bool = False


def plan_of(paged: PagedPlan, *, fixed: bool = False) -> MlaPlan:
    """Return the plan of a step."""
    return MlaPlan(paged, [Piece(one) for one in queries_of(paged, MOST_ROWS)], fixed)
