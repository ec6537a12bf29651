"""Requests as the hook `core_request` sees them, what it may answer, and who sent them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.api.sampling import SamplingView


MAX_USER = 256
"""Characters of `Caller.user`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller of a request. Hooks, scheduling policies and stat sinks see it; it is part of no log line and no metric.

    Attributes:
        user: The end user by the client's own name: `safety_identifier` or `user` of OpenAI's APIs, `metadata.user_id`
            of Anthropic's; empty if it names none. Nobody checks it: whoever has a key may name any. One of more than
            `MAX_USER` characters is replaced by `sha256:` and its digest.
        key: `key_id` of the API key that the client sent; empty where the server asks for none.
    """

    user: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        if len(self.user) > MAX_USER:
            digest = hashlib.sha256(self.user.encode("utf-8", "replace")).hexdigest()
            object.__setattr__(self, "user", f"sha256:{digest}")


def key_id(key: str) -> str:
    """Return the short name of an API key: equal in every server, and of no use to open one."""
    return f"key-{hashlib.sha256(b'core API key' + key.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class RequestDraft:
    """A request that passed every check and is about to be sent to the engine.

    Attributes:
        prompt_token_ids: The prompt; not a list, but an `array` of int32, which must not be changed.
        params: Its sampling parameters.
        priority: Smaller runs earlier, under a policy that looks at it.
        caller: Who sent it.
    """

    prompt_token_ids: Sequence[int]
    params: SamplingView
    priority: int = 0
    caller: Caller = field(default_factory=Caller)


@dataclass(frozen=True, slots=True)
class RequestPatch:
    """Change a request.

    Attributes:
        params: Sampling parameters by name, with their new values.
        priority: The new priority; None leaves it.
    """

    params: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse a request.

    Attributes:
        message: What its client reads.
        status: HTTP status that a server answers with.
        code: Short machine-readable reason.
    """

    message: str
    status: int = 400
    code: str = "rejected_by_plugin"
