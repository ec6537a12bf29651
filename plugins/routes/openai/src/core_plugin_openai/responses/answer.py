"""The `response` object: what the request said, and what has become of it, folded from the events."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from core.api.errors import RequestError
from core_plugin_openai.responses.items import Item
from core_plugin_openai.responses.output import Event

QUEUED, IN_PROGRESS, COMPLETED, INCOMPLETE = "queued", "in_progress", "completed", "incomplete"
FAILED, CANCELLED = "failed", "cancelled"
ENDED = frozenset({COMPLETED, INCOMPLETE, FAILED, CANCELLED})

_ERROR_CODES = {429: "rate_limit_exceeded"}
_CLIENT_ERRORS = range(400, 500)


@dataclass(slots=True)
class Answer:
    """One response.

    Attributes:
        id: `resp_...`.
        request: The fields that repeat the request.
        status: One of the statuses above.
        completed: When it was completed, in seconds since 1970.
        prompt_ids: The prompt, if token ids were asked for.
        stored: Whether it can be had later; while it is made, whether it will be.
    """

    id: str
    model: str
    request: dict[str, Any]
    status: str = IN_PROGRESS
    created: int = field(default_factory=lambda: int(time.time()))
    completed: int | None = None
    prompt_ids: list[int] | None = None
    stored: bool = False
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    reason: str | None = None
    _items: dict[int, Item] = field(default_factory=dict)
    _token_ids: list[int] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.status in ENDED

    @property
    def output(self) -> list[Item]:
        """The items that are complete, in their order; calls may overlap."""
        return [self._items[index] for index in sorted(self._items)]

    def add(self, event: Event) -> None:
        """Fold in an event that the stream sends."""
        self.add_ids(event.get("token_ids", ()))
        if event["type"] == "response.output_item.done":
            self._items[event["output_index"]] = event["item"]

    def add_ids(self, ids: Iterable[int]) -> None:
        """Add ids of tokens."""
        self._token_ids += ids

    def end(self, status: str, usage: dict[str, Any], reason: str | None = None) -> None:
        """Note how it ended; `reason` says why it is incomplete."""
        self.status, self.usage, self.reason = status, usage, reason
        if status == COMPLETED:
            self.completed = int(time.time())

    def fail(self, error: RequestError, usage: dict[str, Any]) -> None:
        """Note what went wrong."""
        code = "invalid_prompt" if error.status in _CLIENT_ERRORS else "server_error"
        self.status, self.usage = FAILED, usage
        self.error = {"code": _ERROR_CODES.get(error.status, code), "message": error.message}

    def to_dict(self) -> dict[str, Any]:
        """Return the object as it is now."""
        ids = {} if self.prompt_ids is None else {"prompt_token_ids": self.prompt_ids, "token_ids": self._token_ids}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": self.completed,
            "status": self.status,
            "error": self.error,
            "incomplete_details": {"reason": self.reason} if self.status == INCOMPLETE else None,
            "model": self.model,
            **self.request,
            "store": self.stored,
            "output": self.output,
            "usage": self.usage,
            **ids,
        }


def usage_object(prompt: int, cached: int, completion: int, reasoning: int) -> dict[str, Any]:
    """Return the usage of a response, in tokens."""
    return {
        "input_tokens": prompt,
        # Nothing is charged for filling the cache, and nobody counts it.
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": prompt + completion,
    }
