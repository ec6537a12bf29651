"""Errors in the words of the API: a rule names fields as core does, a client as its API does."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.api.errors import RequestError


class spelling:  # noqa: N801 - read as a verb; a class costs a third of a generator, and requests pass a dozen
    """Let `RequestError`s raised inside name the front end's own fields.

    Args:
        names: Field of a rule -> field of the front end.
    """

    __slots__ = ("_names",)

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, RequestError):
            found = renamed(error, self._names)
            if found is not error:
                raise found from error


def renamed(error: RequestError, names: Mapping[str, str]) -> RequestError:
    """Return the error as the front end's client would say it: `param` and, where the message names it, the message.

    A rule's `param` may go on with a path (`messages[2].content`): the first part is what is looked up.
    """
    head = re.match(r"\w+", error.param or "")
    if head is None or head[0] not in names:
        return error
    own = names[head[0]]
    message = re.sub(rf"\b{head[0]}\b", own.replace("\\", r"\\"), error.message)
    return error.reworded(message, own + (error.param or "")[head.end() :])
