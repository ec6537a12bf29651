"""Account of one HTTP request on its way through the server: its tokens, and the reason of a refusal.

The account belongs to the context of the request's task, so that whatever works for the request, in tasks of its own
too, can add to it. The gate reads it once, when the answer has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from core.server.errors import ApiError


@dataclass(slots=True)
class Account:
    """One request's account.

    Attributes:
        prompt_tokens, completion_tokens, cached_tokens: Of all generations and pooling calls that it asked for.
        error: The error that it was answered with, if there was one.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    error: ApiError | None = None


_current: ContextVar[Account | None] = ContextVar("core_account", default=None)


@contextmanager
def accounted(account: Account) -> Iterator[None]:
    """Let everything that is done inside be noted in this account."""
    token = _current.set(account)
    try:
        yield
    finally:
        _current.reset(token)


def note_tokens(prompt: int, completion: int, cached: int) -> None:
    """Add to the tokens of the request that is being answered, if there is one."""
    account = _current.get()
    if account is not None:
        account.prompt_tokens += prompt
        account.completion_tokens += completion
        account.cached_tokens += cached


def note_error(error: ApiError) -> ApiError:
    """Note what the request that is being answered is refused with, if there is one; return it."""
    account = _current.get()
    if account is not None:
        account.error = error
    return error
