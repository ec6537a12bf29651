"""Requests of a task in flight: handles out, answers in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from core.api.errors import CoreError, EngineError, RequestError
from core.api.fronts import TaskFront, TaskPrompt
from core.api.requests import Caller
from core.api.sampling_params import SamplingParams
from core.api.wire import restored
from core.engine.messages import Add, Finished, Outputs
from core.frontend.caller import NOBODY
from core.frontend.restarts import MOST_DEATHS, SUSPECT, at_work

logger = logging.getLogger(__name__)

_NOTHING = SamplingParams(max_tokens=1)


class TaskBatch:
    """The prompts of one call.

    Attributes:
        handles: Of its requests, in the order of the prompts.
        on_done: Called once, when `done` becomes true.
        deaths: How many engines died while they worked on it.
    """

    def __init__(self, handles: Sequence[int]) -> None:
        self.handles = handles
        self.on_done: Callable[[], None] = lambda: None
        self.deaths = 0
        self._cached: dict[int, int] = {}
        self._answers: dict[int, Callable[[int], Any]] = {}
        self._error: Exception | None = None

    @property
    def done(self) -> bool:
        """Whether every answer is there, or none will come any more."""
        return self._error is not None or len(self._answers) == len(self.handles)

    def answers(self) -> list[Any]:
        """Return the answers in the order of the prompts. Raises what went wrong."""
        if isinstance(self._error, CoreError):
            raise type(self._error)(self._error.code, self._error.message, hint=self._error.hint)
        if self._error is not None:
            raise self._error
        return [self._answers[handle](self._cached.get(handle, 0)) for handle in self.handles]

    def started(self, handle: int, cached: int) -> None:
        """A request is scheduled; `cached` tokens of its prompt need no computation."""
        self._cached[handle] = cached

    def take(self, handle: int, answer: Callable[[int], Any]) -> None:
        """An answer came, to be made once it is known how many tokens of the prompt were cached."""
        self._answers[handle] = answer
        if self.done:
            self.on_done()

    def fail(self, error: Exception) -> None:
        """The call cannot be answered any more."""
        if not self.done:
            self._error = error
            self.on_done()


class TaskRequests:
    """All requests of one front end whose task is a plugin.

    Args:
        name: Of the task.
        front: Its front half; None where there is no such task, and no such request.
    """

    def __init__(self, name: str, front: TaskFront | None) -> None:
        self._name, self._front = name, front
        self._handles = count(1)
        self._live: dict[int, TaskBatch] = {}
        self._sent: dict[int, Add] = {}

    def __len__(self) -> int:
        """Return the number of prompts in flight."""
        return len(self._live)

    def add(
        self,
        prompts: Sequence[TaskPrompt],
        *,
        priority: int = 0,
        cache_salt: str | None = None,
        caller: Caller = NOBODY,
    ) -> tuple[TaskBatch, list[Add]]:
        """Register a call and return the messages that start its requests."""
        batch = TaskBatch([next(self._handles) for _ in prompts])
        self._live.update(dict.fromkeys(batch.handles, batch))
        messages = [
            Add(
                handle=handle,
                prompt=np.asarray(prompt.ids, dtype="<i4").tobytes(),
                params=_NOTHING,
                priority=priority,
                cache_salt=prompt.salt(cache_salt),
                task=self._name,
                caller=caller,
                parts={} if (part := prompt.part) is None else {self._name: part},
            )
            for handle, prompt in zip(batch.handles, prompts, strict=True)
        ]
        # Prompts of one length in one step: that is the least work for attention.
        messages.sort(key=lambda message: -len(message.prompt))
        self._sent.update({message.handle: message for message in messages})
        return batch, messages

    def drop(self, batch: TaskBatch) -> list[int]:
        """Forget a call; return the handles that the engine must forget too."""
        return [handle for handle in batch.handles if self._pop(handle) is not None]

    def engine_died(self, rows: int) -> None:
        """Count a death of the engine, which had so many rows, and fail the calls that may have caused it."""
        batches = {id(batch): batch for batch in map(self._live.__getitem__, at_work(self._sent, (), rows))}
        for batch in batches.values():
            batch.deaths += 1
            if batch.deaths >= MOST_DEATHS:
                logger.error("a request is ended: %s", SUSPECT)
                batch.fail(_failed(SUSPECT))
                self.drop(batch)

    def resumed(self) -> list[Add]:
        """Return the messages that start everything in flight once more, in a new engine."""
        return list(self._sent.values())

    def process(self, outputs: Outputs) -> list[int]:
        """Take in what a step produced; return handles that nobody waits for any more."""
        for started in outputs.started:
            if started.handle in self._live:
                self._live[started.handle].started(started.handle, started.cached_tokens)
        superfluous: list[int] = []
        for end in outputs.finished:
            batch = self._pop(end.handle)
            if batch is not None and not self._taken(batch, end):
                superfluous += self.drop(batch)
        return superfluous

    def fail_all(self, error: Exception) -> None:
        """Nothing will come any more."""
        for batch in set(self._live.values()):
            batch.fail(error)
        self._live.clear()
        self._sent.clear()

    def _pop(self, handle: int) -> TaskBatch | None:
        self._sent.pop(handle, None)
        return self._live.pop(handle, None)

    def _taken(self, batch: TaskBatch, end: Finished) -> bool:
        """Give a call what came with the end of one of its requests; False if nothing did, and the call failed."""
        front = self._front
        if front is None or self._name not in end.parts:
            batch.fail(_failed(end.error))
            return False
        part, kind = end.parts[self._name], front.part
        try:
            part = part if kind is None else restored(part, kind, self._name)
        except EngineError as error:
            logger.error("%s %s", error.code, error.message)
            batch.fail(error)
            return False
        batch.take(end.handle, partial(front.answer, part))
        return True


def _failed(error: str | None) -> RequestError:
    return RequestError(f"The request failed in the engine: {error}", code="engine_request_error", status=500)
