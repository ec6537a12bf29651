"""One API request as the engine sees it: several prompts merged into one flow, counted and measured."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from core.api.sampling_params import SamplingParams
from core.api.serving import Usage
from core.frontend.gather import GatheredFeed
from core.frontend.output_stream import OutputFeed
from core.frontend.request import GenerationRequest
from core.frontend.results import CompletionOutput, RequestOutput
from core.server.account import note_tokens
from core.server.errors import ApiError
from core.server.refusals import GRAMMAR
from core.server.serving.merging import merge
from core.server.state import ServerState

Take = Callable[[int, RequestOutput], bool]
"""Takes what is new of a prompt; False: `More` has to be asked before the next."""

More = Callable[[], Awaitable[bool]]
"""Returns once there is room for the next output; False: no more is wanted."""

GRAMMAR_TOO_BIG = "CORE-E162"
_ASKED_TOO_MUCH = ("CORE-E122", GRAMMAR_TOO_BIG)
"""Beginnings of errors that a request brought upon itself: nothing is left to sample, its grammar is too big."""


@dataclass(slots=True)
class Generation:
    """The sequences of one API request.

    Attributes:
        requests: One for each prompt, all with the same parameters.
        id: Unique here, unless the client chose it.
        name: What the names of the requests in flight begin with; nothing of it is shown if it is empty.
        prompt_only: Generated tokens are thrown away and not counted.
        interval: Tokens that are gathered per output.
        usage: Grows with the outputs.
        first_token: When the first token came, on the clock of `arrived`; None before.
    """

    state: ServerState
    requests: list[GenerationRequest]
    id: str
    name: str = ""
    prompt_only: bool = False
    interval: int = 1
    usage: Usage = field(default_factory=Usage)
    arrived: float = field(default_factory=time.perf_counter)
    first_token: float | None = None
    _last: dict[tuple[int, int], float] = field(default_factory=dict)
    _cached: dict[int, int] = field(default_factory=dict)
    _decoding: float = 0.0
    _complete: bool = False

    @property
    def params(self) -> SamplingParams:
        """How each prompt is continued."""
        return self.requests[0].params

    @property
    def sequences(self) -> int:
        """How many sequences the engine is asked for."""
        return len(self.requests) * self.params.n

    async def outputs(self) -> AsyncGenerator[tuple[int, RequestOutput], None]:
        """Yield `(prompt index, what is new)`; closing it aborts every sequence.

        Raises:
            ApiError: A sequence failed in the engine.
            RequestError, EngineError: As `ServedLLM.submit`.
        """
        with self._counted():
            streams = [self._each(request) for request in self.requests]
            async with aclosing(merge(streams)) as merged:
                async for index, output in merged:
                    self._observe(index, output)
                    yield index, output
            self._complete = True

    async def run(self, take: Take, more: More | None = None) -> None:
        """Give every output to `take`; cancelling it aborts every sequence.

        One prompt's outputs are given in the turn in which they come, and no task is woken for them until `take`
        returns False.

        Args:
            more: Asked when `take` has returned False; None: no more is wanted then.

        Raises:
            Exception: As `outputs`, and what `take` and `more` raise.
        """
        if len(self.requests) == 1:
            await self._feed(take, more)
            return
        async with aclosing(self.outputs()) as outputs:
            async for index, output in outputs:
                if not take(index, output) and (more is None or not await more()):
                    return

    async def _feed(self, take: Take, more: More | None) -> None:
        def observed(output: RequestOutput) -> bool:
            self._observe(0, output)
            return take(0, output)

        with self._counted():
            async with aclosing(await self._submit(self.requests[0])) as stream:
                while await stream.feed(observed):
                    if more is None or not await more():
                        return
            self._complete = True

    async def _each(self, request: GenerationRequest) -> AsyncGenerator[RequestOutput, None]:
        async with aclosing(await self._submit(request)) as stream:
            async for output in stream:
                yield output

    async def _submit(self, request: GenerationRequest) -> OutputFeed:
        stream = await self.state.llm.submit(request, delta=True)
        return stream if self.interval == 1 else GatheredFeed(stream, self.interval)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Account for the sequences while they run."""
        state = self.state
        state.pending += self.sequences
        if self.name:
            state.shown[self.name] = self.id
        try:
            yield
        finally:
            state.pending -= self.sequences - len(self._last)
            state.shown.pop(self.name, None)
            self._close()

    def timings(self) -> dict[str, float]:
        """Return how long the first token and everything until now took, in seconds."""
        total = time.perf_counter() - self.arrived
        return {
            "first_token_seconds": (self.first_token or total + self.arrived) - self.arrived,
            "total_seconds": total,
        }

    def _observe(self, index: int, output: RequestOutput) -> None:
        now = time.perf_counter()
        cached = self._cached.get(index)
        if cached is None:
            self.usage.prompt += len(output.prompt_ids)
            cached = self._cached[index] = 0
        if output.num_cached_tokens > cached:
            self._cached[index] = output.num_cached_tokens
            self.usage.cached += output.num_cached_tokens - cached
        if output.finished:
            self._decoding += self.state.metrics.phases(output.metrics)
        for sequence in output.outputs:
            self._observe_sequence((index, sequence.index), sequence, now)

    def _observe_sequence(self, key: tuple[int, int], sequence: CompletionOutput, now: float) -> None:
        metrics, count = self.state.metrics, len(sequence.token_ids)
        last = self._last.get(key)
        if last is None:
            self.first_token = self.first_token or now
            self.state.pending -= 1
            metrics.time_to_first_token.observe(now - self.arrived)
        elif count:
            metrics.tokens.gap((now - last) / count)
        self._last[key] = now
        if count and not self.prompt_only:
            self.usage.completion += count
            metrics.tokens.generated += count
        if sequence.finish_reason is not None:
            metrics.finished(sequence.finish_reason)
            if sequence.finish_reason == "error":
                raise self._failure(sequence)

    def _close(self) -> None:
        metrics, usage = self.state.metrics, self.usage
        note_tokens(usage.prompt, usage.completion, usage.cached)
        metrics.prompt_tokens.inc(usage.prompt)
        metrics.cached_tokens.inc(usage.cached)
        if self._complete:
            metrics.e2e_latency.observe(time.perf_counter() - self.arrived)
            metrics.request_prompt_tokens.observe(usage.prompt)
            metrics.request_computed_tokens.observe(usage.prompt - usage.cached)
            metrics.request_generation_tokens.observe(usage.completion)
            metrics.request_sequences.observe(self.params.n)
            if self.params.max_tokens is not None:
                metrics.request_max_tokens.observe(self.params.max_tokens)
            gaps = usage.completion - self.sequences
            if gaps > 0 and self._decoding:
                metrics.time_per_output_token.observe(self._decoding * self.params.n / gaps)

    def _failure(self, sequence: CompletionOutput) -> ApiError:
        """Return the error of a sequence that failed: the client's mistake where what it asks for cannot be done."""
        said, param, grammar = str(sequence.error), sequence.error_param, self.params.grammar
        if param is None and not said.startswith(_ASKED_TOO_MUCH):
            return ApiError(500, f"The request failed in the engine: {said}", code="engine_request_error")
        held = grammar is not None and (param == grammar.param or said.startswith(GRAMMAR_TOO_BIG))
        return ApiError(400, said, param=param, code="invalid_value", reason=GRAMMAR if held else None)


def new_id(prefix: str) -> str:
    """Return an id that nobody else has."""
    return f"{prefix}-{os.urandom(16).hex()}"
