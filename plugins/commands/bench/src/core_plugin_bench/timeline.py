"""From the pieces of a streamed answer to the record of its request."""

from __future__ import annotations

from typing import Any

import orjson

from core.api import Servers
from core_plugin_bench.metrics import Record

_DONE = b"[DONE]"


class Timeline:
    """Fills in a record while pieces of the answer arrive."""

    def __init__(self, servers: Servers, record: Record) -> None:
        self._servers, self._record = servers, record
        self._decoder = servers.events()
        self._last: float | None = None
        self._texts: list[str] = []
        self._refusal = b""

    def receive(self, status: int, piece: bytes, now: float) -> None:
        """Take a piece of the body that was read at `now`."""
        if status != 200:
            self._refusal += piece
            return
        for event in self._decoder.feed(piece):
            if event != _DONE:
                self._take(event, now)

    def end(self, status: int) -> None:
        """The answer is complete: settle what only the whole of it tells."""
        record = self._record
        record.text = "".join(self._texts)
        record.output_len = record.output_len or len(self._texts)
        if status != 200:
            record.error = f"status {status}: {self._reason(self._refusal)}"
        elif self._last is None and not record.error:
            record.error = "the stream ended without a token"

    def _take(self, event: bytes, now: float) -> None:
        try:
            data = orjson.loads(event)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            self._record.error = f"event is no JSON object: {event[:80]!r}"
            return
        if "error" in data:
            self._record.error = self._servers.reason(data)
        for choice in data.get("choices") or ():
            self._choice(choice, now)
        if usage := data.get("usage"):
            self._record.output_len = usage.get("completion_tokens") or 0
            self._record.input_len = usage.get("prompt_tokens") or self._record.input_len

    def _choice(self, choice: dict[str, Any], now: float) -> None:
        delta = choice.get("delta")
        text = choice.get("text") if delta is None else _delta_text(delta)
        # A chat stream opens with an event that names the role and brings no token.
        if delta is not None and delta.get("role") and not text:
            return
        # The last event may only bring the reason of the end.
        if not text and choice.get("finish_reason") and self._last is not None:
            return
        self._arrival(now)
        self._texts.append(text or "")

    def _arrival(self, now: float) -> None:
        if self._last is None:
            self._record.ttft = now - self._record.start
        else:
            self._record.itl.append(now - self._last)
        self._last = now
        self._record.latency = now - self._record.start

    def _reason(self, body: bytes) -> str:
        try:
            return self._servers.reason(orjson.loads(body))
        except ValueError:
            return body[:200].decode(errors="replace")


def _delta_text(delta: dict[str, Any]) -> str | None:
    return delta.get("content") or delta.get("reasoning") or delta.get("reasoning_content")
