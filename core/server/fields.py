"""Fields of objects inside a body that no model describes. All raise `ApiError` 400 naming the field at fault.

Args of all: the object, the field's name, and where in the body the object stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.server.errors import invalid

MAX_NAME = 256


def text_field(item: Mapping[str, Any], field: str, where: str) -> str:
    """Return a text that must be there."""
    value = item.get(field)
    if not isinstance(value, str):
        raise invalid(f"{where}.{field}", "must be a text")
    return value


def optional_text(item: Mapping[str, Any], field: str, where: str) -> str | None:
    """Return a text, or None where there is none."""
    return None if item.get(field) is None else text_field(item, field, where)


def name_field(item: Mapping[str, Any], field: str, where: str) -> str:
    """Return a name or an id: a short text that is not empty."""
    value = item.get(field)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME:
        raise invalid(f"{where}.{field}", f"must be a text of 1 to {MAX_NAME} characters")
    return value
