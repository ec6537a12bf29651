"""The load generator: sends streaming requests to an OpenAI-compatible server and records their timelines."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from core.api import Servers, Signals
from core_plugin_bench.http import HttpClient, HttpError
from core_plugin_bench.metrics import Record, Run
from core_plugin_bench.prompts import Prompt, as_text
from core_plugin_bench.timeline import Timeline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """End point of the requests, and their form.

    Attributes:
        url: Full address of the end point.
        models: Names to ask for; request `i` asks for the one at `i` modulo their number.
        chat: Whether it takes messages instead of a prompt.
        body: Fields that go into every request, on top of the prompt and the length.
        request_id_prefix: With one, every request carries it and its number as `X-Request-Id`.
        verify: Whether the server's certificate is checked, or by which authorities.
    """

    url: str
    models: tuple[str, ...]
    chat: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    request_id_prefix: str = ""
    verify: ssl.SSLContext | bool = True

    def request(self, prompt: Prompt, index: int) -> bytes:
        """Return the body of request number `index`."""
        content: dict[str, Any]
        if self.chat:
            text = as_text(prompt.token_ids) if prompt.text is None else prompt.text
            content = {"messages": [{"role": "user", "content": text}]}
        else:
            content = {"prompt": prompt.token_ids if prompt.text is None else prompt.text}
        fixed = {"stream": True, "stream_options": {"include_usage": True}}
        model = self.models[index % len(self.models)]
        return orjson.dumps({"model": model, **content, "max_tokens": prompt.output_len, **fixed, **self.body})

    def own_headers(self, index: int) -> dict[str, str]:
        """Return the headers of request number `index` alone."""
        return {"X-Request-Id": f"{self.request_id_prefix}{index}"} if self.request_id_prefix else {}


@dataclass(frozen=True, slots=True)
class Pace:
    """When requests go out and how long each may take.

    Attributes:
        times: Seconds after the start at which each request may go out.
        max_concurrency: Requests that may be open at once; a later one waits, and its clock starts when it is sent.
        warmups: Requests sent and awaited before the run; they are not recorded.
        timeout: Seconds of a request.
    """

    times: Sequence[float]
    max_concurrency: int | None = None
    warmups: int = 0
    timeout: float = 6 * 3600.0


def run_loop(signals: Signals, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the fastest event loop there is."""
    try:
        import uvloop
    except ImportError:  # not available on Windows
        return asyncio.run(work())
    with signals.closed_whole(asyncio.Runner(loop_factory=uvloop.new_event_loop)) as runner:
        return runner.run(work())


async def run_load(
    servers: Servers,
    target: Target,
    prompts: Sequence[Prompt],
    pace: Pace,
    finished: Callable[[Record], object] | None = None,
) -> Run:
    """Send one request per prompt, each at its time.

    Args:
        finished: Called with the record of each request when its answer is complete, warm-ups apart.
    """
    load = _Load(servers, target, pace, finished)
    try:
        warm = (load.gated(-1 - index, prompts[index % len(prompts)]) for index in range(pace.warmups))
        await asyncio.gather(*warm)
        cpu, started = time.process_time(), time.perf_counter()
        records = await asyncio.gather(
            *(
                load.at(started + moment, index, prompt)
                for index, (moment, prompt) in enumerate(zip(pace.times, prompts))
            )
        )
        return Run(records, time.perf_counter() - started, time.process_time() - cpu)
    finally:
        await load.close()


class _Load:
    def __init__(
        self, servers: Servers, target: Target, pace: Pace, finished: Callable[[Record], object] | None
    ) -> None:
        self._servers = servers
        self._target, self._timeout, self._finished = target, pace.timeout, finished
        headers = {"Content-Type": "application/json", **target.headers}
        self._http = HttpClient(target.url, headers, verify=target.verify)
        self._gate = asyncio.Semaphore(pace.max_concurrency) if pace.max_concurrency else None

    async def at(self, moment: float, index: int, prompt: Prompt) -> Record:
        delay = moment - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        lag = time.perf_counter() - moment
        record = await self.gated(index, prompt)
        record.lag = lag
        if self._finished is not None:
            self._finished(record)
        return record

    async def gated(self, index: int, prompt: Prompt) -> Record:
        queued = time.perf_counter()
        async with self._gate or nullcontext():
            record = Record(start=time.perf_counter(), input_len=prompt.input_len)
            record.queue_time = record.start - queued
            await self._send(index, prompt, record)
            return record

    async def _send(self, index: int, prompt: Prompt, record: Record) -> None:
        timeline = Timeline(self._servers, record)
        try:
            async with asyncio.timeout(self._timeout):
                body, headers = self._target.request(prompt, index), self._target.own_headers(index)
                timeline.end(await self._http.post(body, timeline.receive, headers))
        except HttpError as error:
            record.error = f"connection: {error}"
        except TimeoutError:
            record.error = f"no complete answer within {self._timeout:g} s"

    async def close(self) -> None:
        await self._http.close()
