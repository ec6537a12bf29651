"""Choosing plugins of the kinds that plugins define: those that the user names, in the option of their kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.api.errors import PluginError
from core.api.kinds import Kind
from core.config.sections import sections
from core.plugins.defined import defined
from core.plugins.drivers import Candidate
from core.selection.demanded import demanded_kinds
from core.selection.select import NONE, Selector

if TYPE_CHECKING:
    from core.config.resolved import Options, SelectOptions


def require_one_definition() -> list[PluginError]:
    """Return what is wrong with definitions of kinds and with sections of options, for a start to tell.

    Raises:
        PluginError: CORE-P102 with both distributions, two define one kind, or declare one section.
    """
    kinds, options = defined(), sections()
    if clashes := (*kinds.clashes, *options.clashes):
        raise clashes[0]
    return [fault.error() for fault in (*kinds.faults, *options.faults)]


def choose_of_defined(selector: Selector, options: Options) -> list[Candidate]:
    """Return the plugins that the user names of defined kinds, and of a kind that is needed anyhow the best.

    Raises:
        PluginError: One that was named cannot be had, or what defines its kind is disabled.
    """
    found, chosen, demanded = defined(), [], demanded_kinds(options)
    for group, kind in found.kinds.items():
        asks = _asks(kind, options.select, needed=kind.needed or group in demanded)
        definer = found.definers[group]
        if asks and definer in selector.catalogue.disabled_entries():
            raise selector.catalogue.refusal(definer, group)
        chosen += [selector.choose(kind, ask) for ask in asks]
    return chosen


def _asks(kind: Kind, select: SelectOptions, *, needed: bool) -> list[str | None]:
    """Return what is to be chosen: a text for each choice, None for the best."""
    value = getattr(select, kind.option) if kind.option else None
    if kind.many:
        names = [name for name in dict.fromkeys(value or []) if name != NONE]
        return names or ([None] if needed and not value else [])
    if value == NONE or (not value and not needed):
        return []
    return [value]
