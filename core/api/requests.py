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
    """Change a request: sampling parameters by name, and its priority unless None."""

    params: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse a request: the message and HTTP status its client gets, and a short machine-readable code."""

    message: str
    status: int = 400
    code: str = "rejected_by_plugin"
