"""Values of arguments that a shell completes: names of installed plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from core.plugins.catalog import Catalogue

Completer = Callable[..., Iterable[str]]
"""A `completer` of argcomplete: called with `prefix` and more, returns what may stand there."""


def listed(group: str | None) -> Completer:
    """Return a completer of a plugin's name, the last of those that a comma separates."""

    def complete(prefix: str, **_: Any) -> list[str]:
        head, comma = prefix.rpartition(",")[:2]
        return [head + comma + name for name in plugin_names(group)]

    return complete


def plugin_names(group: str | None) -> list[str]:
    """Return the installed plugins of a group, or of any (None); from metadata alone."""
    catalogue = Catalogue.scan()
    return sorted({entry.name for entry in (catalogue.usable() if group is None else catalogue.entries(group))})
