"""Choosing the structured-output backends: as many as there are, each for what those before it cannot compile."""

from __future__ import annotations

from core.plugins.drivers import Candidate
from core.plugins.kinds import STRUCTURED_OUTPUT
from core.selection.select import NONE, Selector, is_auto, names_in


def choose_backends(selector: Selector, ask: str | None) -> list[Candidate]:
    """Return the backends in the order they are tried.

    Args:
        ask: Names separated by commas, of which all that can serve take part; `none`; None or `auto` for every one that
            is installed and can serve.

    Raises:
        PluginError: None of those that were named can be had.
    """
    if ask == NONE:
        return []
    contest, named = selector.assess(STRUCTURED_OUTPUT), not is_auto(ask)
    if not named and not contest.ranking():
        return []
    first = selector.choose(STRUCTURED_OUTPUT, ask)
    ranked = contest.asked(names_in(str(ask))) if named else contest.ranking()
    others = {one.entry: one for one in ranked if one.entry != first.entry}
    if others:
        names = ", ".join(one.entry.name for one in others.values())
        selector.reports[-1].notes.append(f"grammars that it cannot compile are left to {names}")
    return [first, *others.values()]
