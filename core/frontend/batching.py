"""Texts of many requests, tokenised together beside the event loop; short ones at once, where they are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from core.trim import trim

INLINE_CHARS = 2048
"""Texts up to here are tokenised on the spot: it takes a third of a millisecond, a thread some 50 us more."""

TURN_CHARS = 16384
"""Characters that are tokenised on the spot in one turn of the event loop, some 2.5 ms; the rest makes a batch."""

BATCH_CHARS = 65536
"""Characters of a batch, some 10 ms of one processor: how long what comes meanwhile waits. Longer texts go alone."""

BATCH_TEXTS = 1024
"""Texts of a batch."""


class BatchEncoder(Protocol):
    """Texts to token ids, as `core.api.Tokenizer.encode_batch`."""

    def __call__(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]: ...


@dataclass(slots=True)
class _Job:
    """A caller's texts that wait for their token ids."""

    texts: Sequence[str]
    special: bool
    chars: int
    answer: asyncio.Future[list[list[int]]]


@dataclass(slots=True)
class _Lane:
    """Jobs in line, and the task that works them off; None while there are none."""

    jobs: deque[_Job] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None

    def take(self) -> list[_Job]:
        """Return the next batch, without those that nobody waits for any more; the first fits whatever its size."""
        batch: list[_Job] = []
        texts = chars = 0
        while self.jobs:
            job = self.jobs[0]
            if not job.answer.done():
                texts, chars = texts + len(job.texts), chars + job.chars
                if batch and (texts > BATCH_TEXTS or chars > BATCH_CHARS):
                    break
                batch.append(job)
            self.jobs.popleft()
        return batch


class TextBatcher:
    """Tokenises for the tasks of one event loop.

    Nothing waits for a batch to fill: a thread that is idle takes what there is, and what comes while it works is the
    next batch. Texts that are longer than a batch have a thread of their own, so that the others pass them. A batch
    that fails is done again job by job, and a job that fails costs its own caller.

    Args:
        encode: Called in threads and on the event loop; releases the interpreter while it works.
    """

    def __init__(self, encode: BatchEncoder) -> None:
        self._encode = encode
        self._lanes = (_Lane(), _Lane())
        self._threads: ThreadPoolExecutor | None = None
        self._turn = 0
        self._closed = False

    async def encode(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """Return the ids of each text. Raises what the tokenizer raises for them."""
        loop, chars = asyncio.get_running_loop(), sum(map(len, texts))
        if self._closed or self._affords(loop, chars):
            return self._encode(texts, add_special_tokens=add_special_tokens)
        job = _Job(texts, add_special_tokens, chars, loop.create_future())
        lane = self._lanes[chars > BATCH_CHARS]
        lane.jobs.append(job)
        if lane.task is None:
            lane.task = loop.create_task(self._work(lane), name="core-tokenize")
        return await job.answer

    def close(self) -> None:
        """Let the threads go; who still waits is cancelled."""
        self._closed = True
        for lane in self._lanes:
            if lane.task is not None:
                lane.task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _affords(self, loop: asyncio.AbstractEventLoop, chars: int) -> bool:
        """Whether a text is so short that it may be tokenised on the spot, in this turn of the loop."""
        if chars > INLINE_CHARS or self._turn + chars > TURN_CHARS:
            return False
        if self._turn == 0:
            loop.call_soon(self._next_turn)
        self._turn += chars
        return True

    def _next_turn(self) -> None:
        self._turn = 0

    async def _work(self, lane: _Lane) -> None:
        loop, batch = asyncio.get_running_loop(), []
        work = _encoded_alone if lane is self._lanes[1] else _encoded
        self._threads = self._threads or ThreadPoolExecutor(len(self._lanes), thread_name_prefix="core-tokenize")
        try:
            while batch := lane.take():
                found = await loop.run_in_executor(self._threads, work, self._encode, batch)
                for job, answer in zip(batch, found, strict=True):
                    _settle(job.answer, answer)
        finally:
            lane.task = None
            for job in (*batch, *lane.jobs):  # the threads are gone
                job.answer.cancel()
            lane.jobs.clear()


def _encoded_alone(encode: BatchEncoder, jobs: Sequence[_Job]) -> list[list[list[int]] | Exception]:
    """As `_encoded`, for long texts: the memory that they took goes back."""
    try:
        return _encoded(encode, jobs)
    finally:
        trim()


def _encoded(encode: BatchEncoder, jobs: Sequence[_Job]) -> list[list[list[int]] | Exception]:
    """Return each job's ids, or what went wrong with it."""
    found: dict[int, list[list[int]] | Exception] = {}
    for special in (True, False):
        mine = [job for job in jobs if job.special is special]
        try:
            ids = iter(encode([text for job in mine for text in job.texts], add_special_tokens=special) if mine else ())
            found |= {id(job): [next(ids) for _ in job.texts] for job in mine}
        except Exception as error:
            if len(mine) == 1:
                found[id(mine[0])] = error
            else:
                found |= {id(job): _encoded(encode, [job])[0] for job in mine}
    return [found[id(job)] for job in jobs]


def _settle(answer: asyncio.Future[list[list[int]]], found: list[list[int]] | Exception) -> None:
    if answer.done():
        return
    if isinstance(found, Exception):
        answer.set_exception(found)
    else:
        answer.set_result(found)
