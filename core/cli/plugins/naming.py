"""How plugins and kinds are named on the command line."""

from __future__ import annotations

from core.api.errors import PluginError
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry, answers
from core.plugins.kinds import KINDS_GROUP, every_kind, kind_of
from core.plugins.known import Table, normalise
from core.suggest import nearest


def group_of(text: str) -> str:
    """Return the group of a kind: its group with or without `core.`, its label, or its option.

    Raises:
        PluginError: CORE-P101 naming the kinds.
    """
    kinds = {**every_kind(), KINDS_GROUP: kind_of(KINDS_GROUP)}
    for group, kind in kinds.items():
        if text in (group, group.removeprefix("core."), kind.label, kind.label.replace(" ", "_"), kind.option or group):
            return group
    names = [group.removeprefix("core.") for group in kinds]
    hint = nearest(text, names) or f"Kinds: {', '.join(names)}."
    raise PluginError("CORE-P101", f"there is no kind of plugin called '{text}'.", hint=hint)


def named(catalogue: Catalogue, ask: str, *, dists: bool = False) -> list[Entry]:
    """Return the entries that `name`, `name@distribution` or `kind:name` names; several kinds may share a name.

    Those that may not be used are among them.

    Args:
        dists: Whether a distribution's name means all of its plugins.

    Raises:
        PluginError: CORE-P101 when there is none.
    """
    every = catalogue.every()
    if dists and (owned := [entry for entry in every if normalise(entry.dist) == normalise(ask)]):
        return owned
    kind, _, rest = ask.rpartition(":")
    group = group_of(kind) if kind else None
    found = [entry for entry in every if group in (None, entry.group) and answers(rest, entry)]
    if not found:
        raise PluginError(
            "CORE-P101", f"no plugin named '{rest}' is installed.", hint=_lead(catalogue, group, rest.partition("@")[0])
        )
    return found


def _lead(catalogue: Catalogue, group: str | None, name: str) -> str:
    """Return where a name leads that nothing installed has."""
    table = Table.read()
    rows = table.named(group, name) if group else table.anywhere(name)
    known = catalogue.advice(rows, name)
    return known or nearest(name, sorted({entry.name for entry in catalogue.every()})) or "See `core plugins list`."
