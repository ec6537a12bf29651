"""Stat sinks: receivers of the engine's figures and of every finished request. Provisional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from core.api.requests import Caller


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Gauges of a moment and counters that grow for the engine's whole life.

    Attributes:
        running, waiting: Requests now.
        blocks_total, blocks_used: KV blocks now.
        steps: Steps settled.
        preemptions: Requests that gave their blocks back.
        prompt_tokens_computed: Prompt tokens run through the model.
        prefix_queries, prefix_hits: Tokens looked up in the prefix cache, and found there.
        scheduled_tokens, wasted_tokens: Tokens run, and those of them that were thrown away.
        blocks_freed_early: KV blocks that running requests gave back because no later token can see them.
        dropped_messages: Messages between the engine and its client, in either direction, that could not be read.
    """

    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_used: int = 0
    steps: int = 0
    preemptions: int = 0
    prompt_tokens_computed: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    scheduled_tokens: int = 0
    wasted_tokens: int = 0
    blocks_freed_early: int = 0
    dropped_messages: int = 0


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One request at its end.

    Attributes:
        request_id: As the client or the front end named it.
        prompt_tokens, cached_tokens: Prompt length, and how much of it the prefix cache supplied.
        output_tokens: Over all its sequences.
        finish_reasons: One per sequence.
        queue_seconds, first_token_seconds, total_seconds: From arrival to its first step, to its first token, and to
            its end; None where that moment never came.
        caller: Who sent it.
    """

    request_id: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish_reasons: tuple[str, ...]
    queue_seconds: float | None
    first_token_seconds: float | None
    total_seconds: float
    caller: Caller = field(default_factory=Caller)


class StatSink(Protocol):
    """Runtime of a `StatSinkSpec`, in the front end. Torch-free.

    Called on a thread of its own, one call at a time, so that nothing that serves requests waits for it. A sink that is
    behind by a thousand records misses further ones; that, and what it raises, is logged, and never reaches a request.
    """

    def __init__(self, options: Mapping[str, Any]) -> None: ...

    def record(self, stats: EngineStats) -> None:
        """Receive the engine's figures: at most once a second, and about once a second while the engine serves."""
        ...

    def finished(self, request: FinishedRequest) -> None:
        """Receive a request that has just ended, for whatever reason."""
        ...

    def close(self) -> None:
        """Flush; nothing more will come."""
        ...
