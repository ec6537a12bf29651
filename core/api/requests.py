"""Requests as the hook `core_request` sees them, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.api.sampling import SamplingView


@dataclass(frozen=True, slots=True)
class RequestDraft:
    """A request that passed every check and is about to be sent to the engine.

    Attributes:
        prompt_token_ids: The prompt.
        params: Its sampling parameters.
        priority: Smaller runs earlier, under a policy that looks at it.
    """

    prompt_token_ids: Sequence[int]
    params: SamplingView
    priority: int = 0


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
