"""Secrets among the options: what operators are shown of options, and texts without what must stay secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.config.fields import option_fields
from core.config.resolved import Options

HIDDEN = "(secret)"
SHORTEST_SECRET = 6
"""Characters. Whoever takes a shorter one out of a text tells which it is."""

_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)


def shown(options: Options) -> dict[str, Any]:
    """Return every option as plain data; of secrets, and of plugins' options that look like one, only that they are."""
    found: dict[str, Any] = {}
    for field in option_fields():
        value = getattr(getattr(options, field.section), field.name)
        plain = HIDDEN if field.secret and value is not None else _plain(value)
        found.setdefault(field.section, {})[field.name] = plain
    return found


def secrets(options: Options) -> list[str]:
    """Return the texts that `shown` hides, the longest first; those that are too short to be any secret are not."""
    found: set[str] = set()
    for field in option_fields():
        found.update(_texts(getattr(getattr(options, field.section), field.name), hidden=field.secret))
    return sorted((text for text in found if len(text) >= SHORTEST_SECRET), key=len, reverse=True)


def _texts(value: Any, *, hidden: bool) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, hidden=hidden or _secret(str(name), inner))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item, hidden=hidden)
    elif hidden and isinstance(value, str):
        yield value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): HIDDEN if _secret(str(name), inner) else _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _secret(name: str, value: Any) -> bool:
    return isinstance(value, str) and _SECRET_NAME.search(name) is not None
