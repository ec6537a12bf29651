"""`AsyncLLM`: requests of many tasks on one engine that runs on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import count
from typing import Any, TypeVar

from core.api.errors import EngineError, RequestError
from core.api.io_processors import IORequest
from core.api.requests import Caller
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig, Options
from core.engine.client import AsyncEngine
from core.engine.messages import Call, Outputs, Stats, ToEngine
from core.engine.sampling import SamplingParams
from core.frontend.beams.search import BeamSearchParams
from core.frontend.beams.stream import beam_stream
from core.frontend.caller import NOBODY
from core.frontend.conversation import Conversation
from core.frontend.engine_link import EngineLink
from core.frontend.inputs import Prepared
from core.frontend.model import FrontModel, Resolved
from core.frontend.output_stream import OutputStream
from core.frontend.outputs import OutputProcessor
from core.frontend.pausing import PauseGate, Pausing, aborted
from core.frontend.pooling.data import DataAnswer, as_output, data_of, io_request
from core.frontend.pooling.model import PoolingModel, Work
from core.frontend.pooling.requests import PoolingBatch, PoolingRequests
from core.frontend.pooling.results import PoolingParams, PoolingRequestOutput
from core.frontend.preparing import AsyncPreparer
from core.frontend.prompts import Cut, PromptInput, as_list
from core.frontend.request import GenerationRequest, spelling
from core.frontend.requests import RequestState
from core.frontend.restarts import RestartBudget, Revival
from core.frontend.results import RequestOutput

logger = logging.getLogger(__name__)

T = TypeVar("T")

Revive = Callable[[], Awaitable[AsyncEngine]]

_ABORTED = "The request was ended by the server's operator."


class AsyncLLM(Pausing):
    """One model, served to many tasks of one event loop.

    Args:
        resolution: What `core.boot.resolve` decided.
        engine: Running engine; closed by `close`.
        tokenizer: The model's, if it was built ahead.
        revive: Starts another engine when this one has died, as often as `--engine-restarts` says; what is in flight
            goes on there. None: requests end with their engine.

    Attributes:
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
        self._outputs = OutputProcessor(self.model.tokenizer, self.model.plugins.sinks.finished)
        self._preparer = AsyncPreparer(self.model)
        self._gate = PauseGate()
        self._pooled = PoolingRequests()
        self._batches: dict[str, PoolingBatch] = {}
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
        from core.boot import resolve
        from core.engine.client import open_async
        from core.engine.environment import prepare_environment
        from core.frontend.overrides import options_with

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

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.model.tokenizer

    @property
    def grammar_kinds(self) -> frozenset[str]:
        """Kinds of grammar that the engine knows."""
        return self.model.plugins.grammars

    @property
    def model_name(self) -> str:
        """Name the model is served under."""
        return self.model.name

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, in tokens."""
        return self.model.max_model_len

    @property
    def config(self) -> EngineConfig:
        """What the engine was started from."""
        return self.model.config

    @property
    def default_params(self) -> SamplingParams:
        """Sampling defaults of the model's makers."""
        return self.model.default_params

    @property
    def template_variables(self) -> frozenset[str]:
        """Names that the model's chat template reads."""
        return self.model.template_variables

    @property
    def template_names(self) -> frozenset[str]:
        """The model's own chat templates, which requests may choose by name."""
        return self.model.template_names

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._link.healthy

    @property
    def failure(self) -> EngineError | None:
        """Why the engine is gone for good."""
        return self._link.failure

    @property
    def retry_after(self) -> int | None:
        """Seconds after which the engine that is being started again should be ready; None if none is."""
        return self._link.retry_after

    @property
    def restarts(self) -> int:
        """How often the engine was started again."""
        return self._link.restarts

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
        if isinstance(prompt, GenerationRequest) and prompt.beams is not None:
            async with aclosing(self._search(prompt, request_id)) as found:
                async for output in found:
                    yield output
            return
        stream = await self.submit(
            prompt,
            params,
            request_id=request_id,
            priority=priority,
            cache_salt=cache_salt,
            caller=caller,
            delta=delta,
        )
        try:
            async for output in stream:
                yield output
        finally:
            stream.close()

    async def submit(
        self,
        prompt: PromptInput | Conversation | GenerationRequest,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        caller: Caller = NOBODY,
        delta: bool = False,
    ) -> OutputStream:
        """Check a request and hand it to the engine; like `generate`, but refusals come before the first read.

        A beam search is no request of the engine: it is left to `generate`.
        """
        self._check_alive()
        self.model.check_generates()
        if isinstance(prompt, GenerationRequest):
            if prompt.beams is not None:
                raise RequestError("a beam search cannot be submitted: use generate", param="beams")
            asked = prompt
        else:
            chosen = params or self.default_params
            asked = GenerationRequest(
                prompt=prompt, params=chosen, priority=priority, cache_salt=cache_salt, caller=caller
            )
        asked.check_call()
        request_id = asked.request_id if request_id is None else request_id
        prepared, priority = self.model.admit(await self._preparer.prepare(asked), asked.priority, asked.caller)
        request_id = self._outputs.new_id() if request_id is None else request_id
        passed = await self._gate.passed(request_id)
        self._check_alive()
        self._check_room(prepared.params.n)
        request, messages = self._outputs.add(
            prepared, request_id=request_id, priority=priority, cache_salt=asked.cache_salt, caller=asked.caller
        )
        stream = self._streams[id(request)] = OutputStream(request, self.forget, delta=delta)
        if not passed:
            self._outputs.abort(request)
            self._notify(request)
            return stream
        self._link.send(messages)
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
        name = self._outputs.new_id() if request_id is None else request_id
        treated: dict[str, Any] = {"priority": priority, "cache_salt": cache_salt, "caller": caller}
        stream = beam_stream(self, prompt, params, request_id=name, **treated)
        async with aclosing(stream):
            return await anext(stream)

    async def encode(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingParams | None = None,
        *,
        pooling_task: str | None = None,
    ) -> list[PoolingRequestOutput[Any]]:
        """Return arrays: what the model gives for `embed`, `token_embed`, `classify` or `token_classify`.

        A prompt `{"data": ...}`, or a list of such, is for the model's I/O processor: `outputs` is then its answer.

        Raises:
            RequestError: The model cannot do it, or a prompt or parameter cannot be served.
            EngineError: The engine is gone.
        """
        pooler, params = self.model.pooler(), pooling_params or PoolingParams()
        data = data_of(prompts)
        if data is None:
            return await self.pool(pooler.encode(as_list(prompts), params, pooling_task))
        requests = [io_request(one, params, pooling_task, f"pooling-{index}") for index, one in enumerate(data)]
        tasks = [asyncio.ensure_future(self.pool_data(request)) for request in requests]
        try:
            done = await asyncio.gather(*tasks)
        finally:
            for task in tasks:  # when one is refused, nobody waits for the others
                task.cancel()
        return [as_output(request, one) for request, one in zip(requests, done, strict=True)]

    async def pool_data(
        self, request: IORequest, *, priority: int = 0, cache_salt: str | None = None, caller: Caller = NOBODY
    ) -> DataAnswer:
        """Answer a request through the model's I/O processor; cancelling it aborts what it runs.

        Raises:
            RequestError: There is no processor, or it or the model refuses the data.
            CoreError: The processor failed, or the engine is gone.
        """
        pool = partial(self.pool, priority=priority, cache_salt=cache_salt, caller=caller)
        return await self.model.data_pooler().run(request, pool)

    async def pool(
        self, work: Work[T], *, priority: int = 0, cache_salt: str | None = None, caller: Caller = NOBODY
    ) -> list[T]:
        """Run pooling work (`PoolingModel`); cancelling it aborts its requests. Raises as `encode`."""
        self._check_alive()
        self.model.admit_pooling(work.prompts, caller)
        name = f"pooling-{next(self._numbers)}"
        if not await self._gate.passed(name):
            raise aborted(_ABORTED)
        self._check_alive()
        self._check_room(len(work.prompts))
        batch, messages = self._pooled.add(work.prompts, priority=priority, cache_salt=cache_salt, caller=caller)
        done = asyncio.Event()
        batch.on_done = done.set
        self._batches[name] = batch
        try:
            self._link.send(messages)
            if messages:
                await done.wait()
        finally:
            del self._batches[name]
            self._link.abort(self._pooled.drop(batch))
        return work.finish(batch.answers())

    @property
    def pooling(self) -> PoolingModel | None:
        """What makes vectors of prompts; None if the model generates."""
        return self.model.pooling

    async def prepare(self, prompt: PromptInput, params: SamplingParams | None = None) -> Prepared:
        """Return a request as it is before plugins see it and the engine gets it; nothing is sent.

        Raises:
            RequestError: The request cannot be served as it is.
        """
        return await self._preparer.prepare(GenerationRequest(prompt=prompt, params=params or self.default_params))

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
            batch.fail(aborted(_ABORTED))

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

    def render_chat(self, chat: Conversation, cut: Cut | None = None) -> list[int]:
        """Return the token ids of a conversation.

        Raises:
            RequestError: The model has no template, the template refuses the conversation, or that is too long.
        """
        ids: list[int] = self.model.chat_prompt(chat, cut)["prompt_token_ids"]
        return ids

    async def tokenize_chat(self, chat: Conversation, cut: Cut | None = None) -> list[int]:
        """As `render_chat`, with what takes its time tokenised beside the event loop, together with others' texts."""
        return await self._preparer.chat_ids(chat, cut)

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text; a long one is tokenised beside the event loop.

        Raises:
            RequestError: No tokenization could make it fit the model's length.
        """
        return await self._preparer.tokenize(text, add_special_tokens=add_special_tokens)

    async def token_offsets(self, asked: GenerationRequest, ids: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return where each of a prompt's tokens stands in its text, in characters; None where nobody knows."""
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

    async def _search(self, asked: GenerationRequest, request_id: str | None) -> AsyncGenerator[RequestOutput, None]:
        """Answer a request with beams, whose prompt is read as any other."""
        self._check_alive()
        self.model.check_generates()
        if asked.beams is None:
            raise TypeError("_search takes requests with beams")
        with spelling(asked.names):
            name = request_id or asked.request_id or self._outputs.new_id()
            prompt = (await self._preparer.prepare(asked)).prompt
            given: dict[str, Any] = {"prompt_token_ids": prompt.ids}
            treated: dict[str, Any] = {
                "priority": asked.priority,
                "cache_salt": asked.cache_salt,
                "caller": asked.caller,
            }
            stream = beam_stream(self, given, asked.beams.params(asked.params), request_id=name, **treated)
            async with aclosing(stream):
                output = await anext(stream)
        output.prompt = prompt.text
        yield output

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
        if self.model.pooling is not None:
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
