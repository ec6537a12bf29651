"""Parts of messages: typed records by name of a participant or task, as they are or as another process sent them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from core.api.errors import EngineError
from core.engine.wire import unpack_array


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
        text = f"a part '{name}' is no {getattr(kind, '__name__', 'part')}: {error}."
        raise EngineError("CORE-E184", text, hint="Both halves must come from one version.") from error


def restore_all(parts: dict[str, Any], kinds: Mapping[str, type | None]) -> None:
    """Make each of `parts` its type, in place. Raises as `restored`."""
    for name, part in parts.items():
        parts[name] = restored(part, kinds.get(name), name)
