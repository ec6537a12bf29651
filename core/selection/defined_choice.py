"""Choosing plugins of the kinds that plugins define: those that the user names, in the option of their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.kinds import Kind
from core.plugins.defined import defined
from core.plugins.drivers import Candidate
from core.selection.select import NONE, Selector

if TYPE_CHECKING:
    from core.config.resolved import SelectOptions


def require_one_definition() -> list[PluginError]:
    """Return what is wrong with definitions of kinds, for a start to tell.

    Raises:
        PluginError: CORE-P102 with both distributions, two define one kind.
    """
    found = defined()
    if found.clashes:
        raise found.clashes[0]
    return [fault.error() for fault in found.faults]


def choose_of_defined(selector: Selector, select: SelectOptions) -> list[Candidate]:
    """Return the plugins that the user names of defined kinds, and of a kind that every start needs the best.

    Raises:
        PluginError: One that was named cannot be had, or what defines its kind is disabled.
    """
    found, chosen = defined(), []
    for group, kind in found.kinds.items():
        asks = _asks(kind, select)
        definer = found.definers[group]
        if asks and definer in selector.catalogue.disabled_entries():
            raise selector.catalogue.refusal(definer, group)
        chosen += [selector.choose(kind, ask) for ask in asks]
    return chosen


def _asks(kind: Kind, select: SelectOptions) -> list[str | None]:
    """Return what is to be chosen: a text for each choice, None for the best."""
    value = getattr(select, kind.option) if kind.option else None
    if kind.many:
        return [name for name in dict.fromkeys(value or []) if name != NONE]
    if value == NONE or (not value and not kind.needed):
        return []
    return [value]
