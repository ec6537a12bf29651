"""Choosing the structured-output backends: as many as there are, each for what those before it cannot compile."""

from __future__ import annotations

from core.plugins.drivers import Candidate
from core.plugins.kinds import STRUCTURED_OUTPUT
from core.plugins.select import Selector, names_in

NONE = "none"


def choose_backends(selector: Selector, ask: str | None) -> list[Candidate]:
    """Return the backends in the order they are tried.

    Args:
        ask: Names separated by commas, all of which take part; `none`; None or `auto` for all that are installed.

    Raises:
        PluginError: One that was named cannot be had.
    """
    if ask == NONE:
        return []
    if ask not in (None, "", "auto"):
        return [selector.choose(STRUCTURED_OUTPUT, name) for name in dict.fromkeys(names_in(ask))]
    ranking = selector.assess(STRUCTURED_OUTPUT).ranking()
    if not ranking:
        return []
    first = selector.choose(STRUCTURED_OUTPUT)
    others = [one for one in ranking if one.entry.name != first.entry.name]
    if others:
        names = ", ".join(one.entry.name for one in others)
        selector.reports[-1].notes.append(f"grammars that it cannot compile are left to {names}")
    return [first, *others]
