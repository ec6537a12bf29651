"""Visible-devices variables: which of the cards a process may use, and in which order. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_plugin_accelerator.cards import Card


class Hidden(Exception):  # noqa: N818 - what happened is no error
    """A variable leaves no card; the message says which, and why."""


def visible(cards: Sequence[Card], variable: str, value: str | None) -> list[Card]:
    """Return the cards that a variable lets be seen, in its order, as the vendors' runtimes read it.

    It lists indices, or the beginnings of UUIDs that no other card shares. What names no card ends the list: the cards
    before it are visible. A card that is named twice hides all.

    Args:
        value: The variable's; None: it is not set, and all cards are visible.

    Raises:
        Hidden: No card is left.
    """
    if value is None:
        return list(cards)
    seen: list[Card] = []
    for token in (part.strip() for part in value.split(",")):
        card = _named(cards, token)
        if card is None:
            if not seen:
                raise Hidden(_why(cards, variable, value, token))
            return seen
        if any(card is one for one in seen):
            raise Hidden(f"{variable}={value!r} names card {token!r} twice, which hides every card")
        seen.append(card)
    return seen


def _named(cards: Sequence[Card], token: str) -> Card | None:
    if token.isdecimal():
        return cards[int(token)] if int(token) < len(cards) else None
    matching = [card for card in cards if token and card.uuid.lower().startswith(token.lower())]
    return matching[0] if len(matching) == 1 else None


def _why(cards: Sequence[Card], variable: str, value: str, token: str) -> str:
    if not value.strip():
        return f"{variable} is set and empty, which hides every card"
    return f"{variable}={value!r} hides every card: {token!r} names none of the {len(cards)} here"
