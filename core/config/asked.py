"""Options that a plugin goes by: the values of those that its descriptor names in `settings`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.config.fields import SECRETS
from core.config.resolved import Options


def settings_of(options: Options, names: Iterable[str], sections: Iterable[str]) -> Mapping[str, Any]:
    """Return options by name: of plugins' sections any, of core's `sections` those that are no secrets.

    Raises:
        LookupError: With the name of one that cannot be had.
    """
    mine = tuple(sections)
    return {name: getattr(getattr(options, _section_of(options, name, mine)), name) for name in names}


def _section_of(options: Options, name: str, sections: Iterable[str]) -> str:
    for section in sections:
        if name in options.names_of(section) and f"{section}.{name}" not in SECRETS:
            return section
    found = options.plugin_section_of(name)
    if found is None:
        raise LookupError(name)
    return found
