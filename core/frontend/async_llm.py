"""`AsyncLLM`: requests of many tasks on one engine that runs on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import Any

from core.api.errors import EngineError, RequestError
from core.api.requests import Caller
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer
from core.config.resolved import Options
from core.engine.client import AsyncEngine
from core.engine.messages import Call, Outputs, Stats, ToEngine
from core.frontend.beams.search import BeamSearchParams
from core.frontend.beams.stream import beam_stream
from core.frontend.caller import NOBODY
from core.frontend.conversation import Conversation
from core.frontend.engine_link import EngineLink
from core.frontend.inputs import Prepared
from core.frontend.model import FrontModel, Resolved
from core.frontend.output_stream import IteratedFeed, OutputFeed, OutputStream
from core.frontend.outputs import OutputProcessor
from core.frontend.pausing import PauseGate, Pausing, aborted
from core.frontend.preparing import AsyncPreparer
from core.frontend.prompts import PromptIds, PromptInput, TokenizedPrompt
from core.frontend.request import GenerationRequest
from core.frontend.requests import RequestState
from core.frontend.restarts import RestartBudget, Revival
from core.frontend.results import RequestOutput
from core.frontend.served_facts import ServedFacts
from core.frontend.spelling import spelling
from core.frontend.tasks.online import ABORTED, PoolingTasks
from core.frontend.tasks.requests import TaskBatch, TaskRequests

logger = logging.getLogger(__name__)

Revive = Callable[[], Awaitable[AsyncEngine]]


class AsyncLLM(ServedFacts, PoolingTasks, Pausing):
    """One model, served to many tasks of one event loop.

    Args:
        resolution: What `core.selection.resolver.resolve` decided.
        engine: Running engine; closed by `close`.
        tokenizer: The model's, if it was built ahead.
        revive: Starts another engine when this one has died, as often as `--engine-restarts` says; what is in flight
            goes on there. None: requests end with their engine.

    Attributes:
        model: What requests are read with.
        stats: The engine's latest counters.
        lost_weights: Version of the updated weights that went with an engine; None if none did, or new ones came.
    """

    def __init__(
        self,
        resolution: Resolved,
        engine: AsyncEngine,
        tokenizer: Tokenizer | None = None,
        revive: Revive | None = None,
    ) -> None:
        self.stats = Stats()
        self.lost_weights: str | None = None
        self._weights: str | None = None
        self.model = FrontModel(resolution, engine.ready, tokenizer)
        self._outputs = OutputProcessor(
            self.model.tokenizer, self.model.plugins.sinks.finished, self.model.plugins.halves.finished
        )
        self._preparer = AsyncPreparer(self.model)
        self._gate = PauseGate()
        self._pooled = TaskRequests(self.config.task, self.model.front)
        self._batches: dict[str, TaskBatch] = {}
        self._streams: dict[int, OutputStream] = {}
        self._numbers = count(1)
        most = self.config.options.runtime.engine_restarts
        revival = Revival(revive, RestartBudget(most), self._lost, self._resumed) if revive and most else None
        self._link = EngineLink(engine, self._distribute, self._failed, revival)

    @classmethod
    async def start(
        cls, model: str | None = None, *, options: Options | None = None, in_process: bool = False, **overrides: Any
    ) -> AsyncLLM:
        """Choose plugins, start the engine, and return once it can serve.

        Args:
            model: Model reference; None takes that of `options`, or the default model.
            in_process: Run the engine in threads of this process instead of a child process.
            overrides: Options by name, such as `dtype="float32"`.

        Raises:
            CoreError: The configuration or the engine fails; the message says why.
        """
        from core.engine.client import open_async
        from core.engine.environment import prepare_environment
        from core.frontend.overrides import options_with
        from core.selection.resolver import resolve

        named = {} if model is None else {"model": model}
        prepare = prepare_environment if in_process else None
        resolution = await asyncio.to_thread(resolve, options_with(options, named | overrides), prepare=prepare)
        engine = await open_async(resolution.config, in_process=in_process)
        # A thread cannot be ended, and what killed it may have broken this process.
        revive = None if in_process else partial(open_async, resolution.config)
        return await cls.connect(resolution, engine, revive=revive)

    @classmethod
    async def connect(
        cls,
        resolution: Resolved,
        engine: AsyncEngine,
        tokenizer: Tokenizer | None = None,
        revive: Revive | None = None,
    ) -> AsyncLLM:
        """Return a front end that listens to a running engine, which counts as silent otherwise.

        The engine is closed if its front end cannot be made.

        Raises:
            CoreError: As `FrontModel`.
        """
        try:
            llm = cls(resolution, engine, tokenizer, revive)
        except BaseException:
            await engine.close()
            raise
        llm.listen()
        return llm

    def listen(self) -> None:
        """Take what the engine sends from now on, its signs of life included. Harmless when repeated."""
        self._link.listen()

    # -- requests --------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: PromptInput | Conversation | GenerationRequest,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        caller: Caller = NOBODY,
        delta: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Yield outputs until the request has finished; closing or cancelling the iterator aborts it.

        Args:
            prompt: A `GenerationRequest` brings everything but `delta` with it.
            params: None takes the model's defaults.
            caller: Who asks, for hooks, scheduling policies and stat sinks.
            delta: Yield what is new each time, instead of everything so far.

        Raises:
            RequestError: The request cannot be served as it is.
            EngineError: The engine is gone.
        """
        if isinstance(prompt, GenerationRequest):
            request = prompt
        else:
            request = GenerationRequest(
                prompt=prompt,
                params=params or self.default_params,
                priority=priority,
                cache_salt=cache_salt,
                caller=caller,
                engine_id=request_id,
            )
        async with aclosing(await self.submit(request, delta=delta)) as stream:
            async for output in stream:
                yield output

    async def submit(self, request: GenerationRequest, *, delta: bool = False) -> OutputFeed:
        """Check a request and hand it to the engine; like `generate`, but refusals come before the first read.

        A beam search begins with the first read, and has one output.
        """
        self._check_alive()
        self.model.check_generates()
        with spelling(request.names):
            request.check_call()
            if request.beams is not None:
                return self._search(request, request.beams.params(request.params))
            prepared = self.model.admit(await self._preparer.prepare(request))
            name = self._outputs.name_of(request)
            passed = await self._gate.passed(name)
            self._check_alive()
            self._check_room(prepared.params.n)
            state, messages = self._outputs.add(prepared, name)
        stream = self._streams[id(state)] = OutputStream(state, self.forget, delta=delta)
        if passed:
            self._link.send(messages)
        else:
            self._outputs.abort(state)
            self._notify(state)
        return stream

    async def beam_search(
        self,
        prompt: PromptInput,
        params: BeamSearchParams,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        caller: Caller = NOBODY,
    ) -> RequestOutput:
        """Return the `beam_width` sequences that the model finds most likely, best first; cancelling it aborts them.

        Raises:
            RequestError: The prompt or a parameter cannot be served.
            EngineError: The engine is gone.
        """
        self._check_alive()
        self.model.check_generates()
        request = GenerationRequest(
            prompt=prompt, priority=priority, cache_salt=cache_salt, caller=caller, engine_id=request_id
        )
        async with aclosing(self._search(request, params)) as stream:
            return await anext(stream)

    async def prepare(self, request: GenerationRequest) -> Prepared:
        """Return a request as it is before plugins see it and the engine gets it; nothing is sent.

        Raises:
            RequestError: The request cannot be served as it is.
        """
        with spelling(request.names):
            return await self._preparer.prepare(request)

    async def tokenized(self, request: GenerationRequest) -> TokenizedPrompt:
        """Return a request's prompt. Raises `RequestError`."""
        with spelling(request.names):
            return await self._preparer.tokenized(request)

    async def abort(self, request_id: str) -> None:
        """End a request; its readers get an output with finish reason `abort`. Unknown ids are ignored.

        Callers of `pool` get a `RequestError` with status 503.
        """
        self._gate.end(request_id)
        request, batch = self._outputs.get(request_id), self._batches.get(request_id)
        if request is not None:
            self._link.abort(self._outputs.abort(request))
            self._notify(request)
        if batch is not None:
            batch.fail(aborted(ABORTED))

    @property
    def request_ids(self) -> list[str]:
        """Ids of the requests that have not ended: those in flight, and those that a pause holds back."""
        return [*self.running_ids, *self._gate.waiting]

    @property
    def running_ids(self) -> list[str]:
        """Ids of the requests in flight."""
        return [*self._outputs.ids, *self._batches]

    @property
    def in_flight(self) -> int:
        """Sequences that the engine has."""
        return len(self._outputs) + len(self._pooled)

    def forget(self, request: RequestState) -> None:
        """Nobody reads this request any more: abort it if it runs."""
        self._streams.pop(id(request), None)
        self._link.abort(self._outputs.abort(request))

    def render_chat(self, request: GenerationRequest) -> PromptIds:
        """Return the token ids of a request's conversation.

        Raises:
            RequestError: The model has no template, the template refuses the conversation, or that is too long.
        """
        with spelling(request.names):
            return self.model.chat_prompt(request.chat, request.cut).ids

    async def tokenize_chat(self, request: GenerationRequest) -> PromptIds:
        """As `render_chat`, with what takes its time tokenised beside the event loop, together with others' texts."""
        with spelling(request.names):
            return await self._preparer.chat_ids(request)

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text; a long one is tokenised beside the event loop.

        Raises:
            RequestError: No tokenization could make it fit the model's length.
        """
        return await self._preparer.tokenize(text, add_special_tokens=add_special_tokens)

    async def token_offsets(self, asked: GenerationRequest, ids: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return where each of a prompt's tokens stands in its text, in characters; None where nobody knows."""
        with spelling(asked.names):
            return await self._preparer.offsets(asked, ids)

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data and return its value.

        Raises:
            CoreError: The engine's own; CORE-E181, it died meanwhile, or is being started again.
        """
        value = await self._link.call(method, *args)
        if method == "update_weights":
            self._weights, self.lost_weights = str(value), None
        return value

    async def close(self) -> None:
        """End every request and stop the engine. Harmless when repeated."""
        await self._link.close()
        self._preparer.close()
        await self._link.engine.close()
        self.model.plugins.sinks.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _search(self, request: GenerationRequest, params: BeamSearchParams) -> IteratedFeed:
        return IteratedFeed(beam_stream(self, request, params, self._outputs.name_of(request)))

    def _check_alive(self) -> None:
        self._link.check()

    def _check_room(self, wanted: int) -> None:
        limits = self.config.options.scheduler
        most = limits.max_num_seqs + limits.max_waiting
        live = len(self._outputs) + len(self._pooled)
        if live + wanted > most:
            raise RequestError(
                f"the server is busy: {live} of {most} sequences are running or waiting; try again later",
                code="overloaded",
                status=503,
            )

    def _notify(self, request: RequestState) -> None:
        stream = self._streams.get(id(request))
        if stream is not None:
            stream.notify()
        if request.finished:
            self._streams.pop(id(request), None)

    def _distribute(self, outputs: Outputs) -> None:
        if outputs.stats is not None:
            self.stats = outputs.stats
            self.model.plugins.sinks.observe(outputs.stats)
        if self.model.front is not None:
            self._link.abort(self._pooled.process(outputs))
            return
        done = self._outputs.process(outputs)
        self._link.abort(done.aborts)
        for request in done.changed.values():
            self._notify(request)

    def _lost(self, error: EngineError) -> None:
        """The engine died and is started again."""
        self.stats = Stats()
        rows = self.config.options.scheduler.max_num_seqs
        for request in self._outputs.engine_died(rows):
            self._notify(request)
        self._pooled.engine_died(rows)
        if self._weights is not None:
            self.lost_weights, self._weights = self._weights, None
            text = "the updated weights (version %s) are lost with the engine: the checkpoint's own are served again"
            logger.warning(text, self.lost_weights)

    def _resumed(self) -> list[ToEngine]:
        """Return what the next engine is told first."""
        pause: list[ToEngine] = [Call(0, "pause", [True])] if self._gate.frozen else []
        return [*pause, *self._outputs.resumed(), *self._pooled.resumed()]

    def _failed(self, error: EngineError) -> None:
        self._outputs.abort_all()
        self._pooled.fail_all(error)
        for stream in self._streams.values():
            stream.fail(error)
        self._streams.clear()
        self._gate.open()
