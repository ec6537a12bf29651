"""Caller of the request that is being answered: the key that the gate has seen, and the user that the body names.

The key belongs to the context of the request's task, so that whatever is asked on its behalf, by routes of plugins and
by tasks that go on behind it too, has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.api.requests import Caller

_key: ContextVar[str] = ContextVar("core_api_key_id", default="")


@contextmanager
def authenticated(key: str) -> Iterator[None]:
    """Let everything that is asked inside be asked with the API key of this id."""
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)


def caller_of(user: str | None = None) -> Caller:
    """Return who asks, given whom the body names."""
    return Caller(_text(user), _key.get())


def _text(user: str | None) -> str:
    """Return what can be sent on: JSON may hold half of a character."""
    return "" if user is None else user.encode("utf-8", "replace").decode()
