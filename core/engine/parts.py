"""Parts of messages: typed records by name of a participant or task, as they are or as another process sent them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from core.api.errors import EngineError
from core.api.wire import unpack_array


def require_kind(part: Any, kind: type | None, name: str) -> None:
    """Raise `EngineError` CORE-E184 unless a part that participant `name` sends is of the type that it declares."""
    if kind is None or not isinstance(part, kind):
        due = "it declares no such part" if kind is None else f"it is a {type(part).__name__}"
        raise _no_part(name, kind, due)


def restored(part: Any, kind: type | None, name: str) -> Any:
    """Return a part as its declared type: itself in one process, rebuilt from plain data behind a process border.

    Raises:
        EngineError: CORE-E184, the data is not of that type, or nobody declares such a part.
    """
    if kind is not None and isinstance(part, kind):
        return part
    try:
        if kind is None:
            raise ValueError("nobody declares such a part")
        return msgspec.convert(part, kind, dec_hook=unpack_array)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise _no_part(name, kind, str(error)) from error


def restore_all(parts: dict[str, Any], kinds: Mapping[str, type | None]) -> None:
    """Make each of `parts` its type, in place. Raises as `restored`."""
    for name, part in parts.items():
        parts[name] = restored(part, kinds.get(name), name)


def _no_part(name: str, kind: type | None, why: str) -> EngineError:
    text = f"a part '{name}' is no {getattr(kind, '__name__', 'part')}: {why}."
    return EngineError("CORE-E184", text, hint="Both halves must come from one version of its plugin.")
