"""Choosing the template engine: the best one that is installed, whatever the model; without one nobody can chat."""

from __future__ import annotations

from core.plugins.drivers import Candidate
from core.plugins.kinds import CHAT_TEMPLATE
from core.selection.select import NONE, Selector, is_auto


def choose_template_engine(selector: Selector, ask: str | None) -> list[Candidate]:
    """Return the engine, or nothing where none is installed and nobody asked for one.

    Args:
        ask: A name; `none`; None or `auto` for the best installed.

    Raises:
        PluginError: The one that was named cannot be had, or none of the installed can serve.
    """
    if ask == NONE or (is_auto(ask) and not selector.catalogue.entries(CHAT_TEMPLATE.group)):
        return []
    return [selector.choose(CHAT_TEMPLATE, ask)]
