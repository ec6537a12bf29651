"""What a moderator is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Moderator(Protocol):
    """Looks at texts, beside the event loop and in several threads at once.

    Made without arguments, or with its options where its descriptor names a model of them.
    """

    def look(self, text: str) -> Mapping[str, float]:
        """Return what speaks against a text: category -> from 0 to 1; from 0.5 on the text is refused."""
        ...


class Explains(Protocol):
    """A moderator that can say more."""

    def explain(self, category: str) -> str:
        """Return what clients are told of a text that is refused for a category."""
        ...
