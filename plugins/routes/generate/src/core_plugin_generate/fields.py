"""Reading requests: their types, and values that would change the answer if they were ignored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.api import RequestError

MAX_PROMPTS = 1024

B = TypeVar("B", bound=BaseModel)


def up_to(most: int) -> Any:
    """Return the bound of a list: it, or the first member that is wrong, ends the check."""
    return Field(max_length=most, fail_fast=True)


class Body(BaseModel):
    """An object of a request; unknown fields are let through."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


def read(kind: type[B], fields: Mapping[str, Any], where: str = "") -> B:
    """Return a request, or the part of it that `where` names. Raises `RequestError` that names the first fault."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join([*([where] if where else []), *(str(part) for part in first["loc"])])
        raise RequestError(f"{path}: {first['msg']}", param=path) from None


def refuse(fields: Mapping[str, Any], refused: Mapping[str, str], where: str = "") -> None:
    """Refuse fields that ask for something. Raises `RequestError`.

    Args:
        refused: Field -> what to say about it; empty values, zeros and -1 ask for nothing.
    """
    for name, why in refused.items():
        value = fields.get(name)
        if value and value != -1:
            path = f"{where}.{name}" if where else name
            raise RequestError(f"{path}: {why}", param=path)


def token_ids(value: Any, vocab_size: int, where: str) -> list[int]:
    """Return a list of token ids. Raises `RequestError`."""
    right = isinstance(value, list) and {*map(type, value)} <= {int}
    if not right or min(value, default=0) < 0 or max(value, default=0) >= vocab_size:
        raise RequestError(f"{where}: token ids are integers from 0 to {vocab_size - 1}", param=where)
    return list(value)
