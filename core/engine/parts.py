"""Parts of messages: typed records by name of a participant or task, as they are or as another process sent them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.wire import no_part, restored


def require_kind(part: Any, kind: type | None, name: str) -> None:
    """Raise `EngineError` CORE-E184 unless a part that participant `name` sends is of the type that it declares."""
    if kind is None or not isinstance(part, kind):
        due = "it declares no such part" if kind is None else f"it is a {type(part).__name__}"
        raise no_part(name, kind, due)


def restore_all(parts: dict[str, Any], kinds: Mapping[str, type | None]) -> None:
    """Make each of `parts` its type, in place. Raises as `restored`."""
    for name, part in parts.items():
        parts[name] = restored(part, kinds.get(name), name)
