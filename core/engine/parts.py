"""Parts of messages: typed records by participant name, as they are or as another process sent them."""

from __future__ import annotations

from typing import Any

import msgspec

from core.api.errors import EngineError
from core.engine.wire import unpack_array


def restored(part: Any, kind: type | None, name: str) -> Any:
    """Return a part as its declared type: itself in one process, rebuilt from plain data behind a process border.

    Raises:
        EngineError: CORE-E184, the data is not of that type, or the participant declares no such part.
    """
    if kind is not None and isinstance(part, kind):
        return part
    try:
        if kind is None:
            raise ValueError("it declares no such part")
        return msgspec.convert(part, kind, dec_hook=unpack_array)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        text = f"a part of participant '{name}' is no {getattr(kind, '__name__', 'part')}: {error}."
        raise EngineError("CORE-E184", text, hint="Both halves must come from one version of its plugin.") from error
