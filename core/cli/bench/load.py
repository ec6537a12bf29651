"""The load generator: sends streaming requests to an OpenAI-compatible server and records their timelines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from core.cli.bench.metrics import Record
from core.cli.bench.prompts import Prompt, as_text
from core.cli.client import error_text
from core.cli.sse import DONE, EventDecoder


@dataclass(frozen=True, slots=True)
class Target:
    """What to ask, and how.

    Attributes:
        url: Full address of the end point.
        chat: Whether it takes messages instead of a prompt.
        body: Fields that go into every request, on top of the prompt and the length.
    """

    url: str
    model: str
    chat: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)

    def request(self, prompt: Prompt) -> bytes:
        """Return the body of one request."""
        content: dict[str, Any] = (
            {"messages": [{"role": "user", "content": as_text(prompt.token_ids)}]}
            if self.chat
            else {"prompt": prompt.token_ids}
        )
        fixed = {"stream": True, "stream_options": {"include_usage": True}}
        return orjson.dumps({"model": self.model, **content, "max_tokens": prompt.output_len, **fixed, **self.body})


async def run_load(
    target: Target,
    prompts: Sequence[Prompt],
    times: Sequence[float],
    *,
    max_concurrency: int | None = None,
    warmups: int = 0,
    timeout: float = 6 * 3600,
) -> tuple[list[Record], float]:
    """Send one request per prompt, each at its time, and return their records and the seconds the run took.

    Args:
        times: Seconds after the start at which each request may go out.
        max_concurrency: Requests that may be open at once; a later one waits, and its clock starts when it is sent.
        warmups: Requests sent and awaited before the run; they are not recorded.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    # Chunks are timed as they arrive on the wire, so they must not be compressed.
    headers = {"Accept-Encoding": "identity", **target.headers}
    async with httpx.AsyncClient(limits=limits, timeout=timeout, headers=headers) as http:
        warm = [prompts[index % len(prompts)] for index in range(warmups)]
        gate = asyncio.Semaphore(max_concurrency) if max_concurrency else None
        await asyncio.gather(*(_gated(http, target, prompt, gate) for prompt in warm))
        started = time.perf_counter()
        records = await asyncio.gather(
            *(_at(started + moment, http, target, prompt, gate) for moment, prompt in zip(times, prompts))
        )
        return records, time.perf_counter() - started


async def _at(
    moment: float, http: httpx.AsyncClient, target: Target, prompt: Prompt, gate: asyncio.Semaphore | None
) -> Record:
    delay = moment - time.perf_counter()
    if delay > 0:
        await asyncio.sleep(delay)
    return await _gated(http, target, prompt, gate)


async def _gated(http: httpx.AsyncClient, target: Target, prompt: Prompt, gate: asyncio.Semaphore | None) -> Record:
    async with gate or nullcontext():
        return await send(http, target, prompt)


async def send(http: httpx.AsyncClient, target: Target, prompt: Prompt) -> Record:
    """Send one request and return its record; a failure is a record with an error."""
    record = Record(start=time.perf_counter(), input_len=len(prompt.token_ids))
    try:
        async with AsyncExitStack() as stack:
            headers = {"Content-Type": "application/json"}
            request = http.stream("POST", target.url, content=target.request(prompt), headers=headers)
            response = await stack.enter_async_context(request)
            if response.status_code != 200:
                record.error = f"status {response.status_code}: {_reason(await response.aread())}"
            else:
                await _follow(response, record)
    except httpx.HTTPError as error:
        record.error = f"{type(error).__name__}: {error}"
    return record


async def _follow(response: httpx.Response, record: Record) -> None:
    timeline = _Timeline(record)
    decoder = EventDecoder()
    async for chunk in response.aiter_raw():
        now = time.perf_counter()
        for event in decoder.feed(chunk):
            if event != DONE:
                timeline.take(event, now)
    timeline.end()


class _Timeline:
    """Fills in a record while events arrive."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._last: float | None = None
        self._texts: list[str] = []

    def take(self, event: bytes, now: float) -> None:
        try:
            data = orjson.loads(event)
        except ValueError:
            self._record.error = f"event is not JSON: {event[:80]!r}"
            return
        if "error" in data:
            self._record.error = error_text(data)
        for choice in data.get("choices") or ():
            self._choice(choice, now)
        if usage := data.get("usage"):
            self._record.output_len = usage.get("completion_tokens") or 0
            self._record.input_len = usage.get("prompt_tokens") or self._record.input_len

    def _choice(self, choice: dict[str, Any], now: float) -> None:
        delta = choice.get("delta")
        text = choice.get("text") if delta is None else delta.get("content") or delta.get("reasoning")
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

    def end(self) -> None:
        record = self._record
        record.text = "".join(self._texts)
        record.output_len = record.output_len or len(self._texts)
        if self._last is None and not record.error:
            record.error = "the stream ended without a token"


def _reason(body: bytes) -> str:
    try:
        return error_text(orjson.loads(body))
    except ValueError:
        return body[:200].decode(errors="replace")
