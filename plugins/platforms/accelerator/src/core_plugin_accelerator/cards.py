"""Cards as their drivers describe them, and what a probe makes of them. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from core.api.verdict import ProbeResult

OWN_MEMORY = "own_memory"
"""Feature of every card: it has memory of its own."""

Fact = str | int | float | bool
Points = Callable[[str], Mapping[str, int]]
"""Architecture -> score adjustments."""


@dataclass(frozen=True, slots=True)
class Card:
    """One device.

    Attributes:
        name: As its maker calls it.
        arch: Architecture, as kernels are made for it: `9.0`, `gfx942`, `xe2-hpg`.
        memory: Bytes.
        capability: The architecture as a comparable tuple.
        uuid: What visible-devices variables may name it by; empty if the driver tells none.
        features: What it can do, as `ProbeResult.features`.
        facts: Further facts.
        unfit: Why it cannot be used; empty: it can. It keeps its index, as torch counts it too.
    """

    name: str
    arch: str
    memory: int
    capability: tuple[int, ...] = ()
    uuid: str = ""
    features: frozenset[str] = frozenset()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    unfit: str = ""

    @property
    def title(self) -> str:
        """Name, architecture and memory in a few words."""
        return f"{self.name} ({self.arch}), {self.memory / 2**30:.0f} GiB"


def found(cards: Sequence[Card], facts: Mapping[str, Fact], points: Points) -> ProbeResult:
    """Return what a probe reports of cards, of which there is at least one.

    Args:
        facts: What holds for all of them: versions of drivers.
        points: The preferences of an architecture.
    """
    each = tuple(_of(card, {**facts, "count": len(cards)}, points) for card in cards)
    driver = f", driver {facts['driver']}" if facts.get("driver") else ""
    several = len({card.title for card in cards}) > 1
    titles = ", ".join(card.title for card in cards) if several else cards[0].title
    count = f"{len(cards)} x " if len(cards) > 1 and not several else ""
    first = each[0]
    if first.available:
        first = first.model_copy(update={"reason": f"{count}{titles}{driver}"})
    return first.model_copy(update={"devices": (first, *each[1:])}) if len(cards) > 1 else first


def absent(reason: str) -> ProbeResult:
    """Return the answer of a probe that finds nothing to use, in one line."""
    return ProbeResult(available=False, reason=" ".join(reason.split()))


def _of(card: Card, facts: Mapping[str, Fact], points: Points) -> ProbeResult:
    own: dict[str, Fact] = {"name": card.name, "arch": card.arch, "memory": card.memory, **card.facts, **facts}
    return ProbeResult(
        available=not card.unfit,
        reason=card.unfit or card.title,
        capability=card.capability,
        facts=own,
        features=card.features | {OWN_MEMORY},
        preferences=dict(points(card.arch)),
    )
