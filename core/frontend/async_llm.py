"""`AsyncLLM`: requests of many tasks on one engine that runs on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from core.api.errors import CoreError, EngineError, RequestError
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig, Options
from core.engine.client import AsyncEngine
from core.engine.messages import Abort, Call, CallResult, Failed, FromEngine, Outputs, Stats
from core.engine.sampling import SamplingParams
from core.frontend.conversation import Conversation
from core.frontend.inputs import Prepared, PromptInput, as_list
from core.frontend.model import FrontModel, Resolved
from core.frontend.outputs import OutputProcessor
from core.frontend.pausing import Gate, Pausing
from core.frontend.pooling import PoolingModel, Work
from core.frontend.pooling_requests import PoolingRequests
from core.frontend.pooling_results import PoolingOutput, PoolingParams, PoolingRequestOutput
from core.frontend.request import GenerationRequest
from core.frontend.requests import RequestState
from core.frontend.results import RequestOutput

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONG_TEXT = 16384
"""Characters from which on a prompt is tokenised in a thread, so that other requests' tokens keep flowing."""


class OutputStream:
    """The outputs of one request, as an async iterator; `close` before its end aborts the request.

    Outputs are not queued: what arrives while nobody waits is merged into the next one.
    """

    def __init__(self, owner: AsyncLLM, request: RequestState, *, delta: bool) -> None:
        self.request_id = request.request_id
        self._owner, self._request, self._delta = owner, request, delta
        self._fresh = False
        self._waiter: asyncio.Future[None] | None = None
        self._failure: EngineError | None = None
        self._ended = False

    def notify(self) -> None:
        """There is something to take."""
        self._fresh = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: EngineError) -> None:
        """The engine is gone; the next read raises."""
        self._failure = error
        self.notify()

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._ended:
            raise StopAsyncIteration
        if not self._fresh:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._fresh = False
        if self._failure is not None:
            self._ended = True
            raise EngineError(self._failure.code, self._failure.message, hint=self._failure.hint)
        output = self._request.take(delta=self._delta)
        self._ended = output.finished
        return output

    def close(self) -> None:
        """Stop reading. The engine forgets the request if it still runs."""
        self._ended = True
        self._owner.forget(self._request)


class AsyncLLM(Pausing):
    """One model, served to many tasks of one event loop.

    Args:
        resolution: What `core.boot.resolve` decided.
        engine: Running engine; closed by `close`.
        tokenizer: The model's, if it was built ahead.

    Attributes:
        stats: The engine's latest counters.
    """

    def __init__(self, resolution: Resolved, engine: AsyncEngine, tokenizer: Tokenizer | None = None) -> None:
        self.engine = engine
        self.stats = Stats()
        self.model = FrontModel(resolution, engine.ready, tokenizer)
        self._outputs = OutputProcessor(self.model.tokenizer, self.model.plugins.sinks.finished)
        self._gate = Gate()
        self._pooled = PoolingRequests()
        self._streams: dict[int, OutputStream] = {}
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count(1)
        self._receiver: asyncio.Task[None] | None = None
        self._failure: EngineError | None = None

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
        from core.frontend.overrides import options_with

        named = {} if model is None else {"model": model}
        resolution = await asyncio.to_thread(resolve, options_with(options, named | overrides))
        engine = await open_async(resolution.config, in_process=in_process)
        try:
            llm = cls(resolution, engine)
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
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._failure is None and self.engine.alive()

    def listen(self) -> None:
        """Take what the engine sends from now on, its signs of life included. Harmless when repeated."""
        if self._receiver is None and self._failure is None:
            self._receiver = asyncio.get_running_loop().create_task(self._receive(), name="core-receive")

    # -- requests --------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt: PromptInput | Conversation | GenerationRequest,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        delta: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Yield outputs until the request has finished; closing or cancelling the iterator aborts it.

        Args:
            prompt: A `GenerationRequest` brings everything but `delta` with it.
            params: None takes the model's defaults.
            delta: Yield what is new each time, instead of everything so far.

        Raises:
            RequestError: The request cannot be served as it is.
            EngineError: The engine is gone.
        """
        stream = await self.submit(
            prompt, params, request_id=request_id, priority=priority, cache_salt=cache_salt, delta=delta
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
        delta: bool = False,
    ) -> OutputStream:
        """Check a request and hand it to the engine; like `generate`, but refusals come before the first read."""
        self._check_alive()
        self.model.check_generates()
        if isinstance(prompt, GenerationRequest):
            asked = prompt
        else:
            chosen = params or self.default_params
            asked = GenerationRequest(prompt=prompt, params=chosen, priority=priority, cache_salt=cache_salt)
        asked.check_call()
        request_id = asked.request_id if request_id is None else request_id
        prepared, priority = self.model.admit(await self._prepare(asked), asked.priority)
        await self._gate.passed()
        self._check_alive()
        self._check_room(prepared.params.n)
        request, messages = self._outputs.add(
            prepared, request_id=request_id, priority=priority, cache_salt=asked.cache_salt
        )
        stream = self._streams[id(request)] = OutputStream(self, request, delta=delta)
        self.listen()
        try:
            for message in messages:
                self.engine.send(message)
        except EngineError as error:
            self.forget(request)
            self._fail(error)
            raise
        return stream

    async def encode(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingParams | None = None,
        *,
        pooling_task: str | None = None,
    ) -> list[PoolingRequestOutput[PoolingOutput]]:
        """Return arrays: what the model gives for `embed`, `token_embed`, `classify` or `token_classify`.

        Raises:
            RequestError: The model cannot do it, or a prompt or parameter cannot be served.
            EngineError: The engine is gone.
        """
        pooler, params = self.model.pooler(), pooling_params or PoolingParams()
        return await self.pool(pooler.encode(as_list(prompts), params, pooling_task))

    async def pool(self, work: Work[T], *, priority: int = 0, cache_salt: str | None = None) -> list[T]:
        """Run pooling work (`PoolingModel`); cancelling it aborts its requests. Raises as `encode`."""
        self._check_alive()
        self.model.admit_pooling(work.prompts)
        await self._gate.passed()
        self._check_alive()
        self._check_room(len(work.prompts))
        self.listen()
        batch, messages = self._pooled.add(work.prompts, priority=priority, cache_salt=cache_salt)
        done = asyncio.Event()
        batch.on_done = done.set
        try:
            for message in messages:
                self.engine.send(message)
            if messages:
                await done.wait()
        except EngineError as error:
            self._fail(error)
            raise
        finally:
            self._abort(self._pooled.drop(batch))
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
        return await self._prepare(GenerationRequest(prompt=prompt, params=params or self.default_params))

    async def abort(self, request_id: str) -> None:
        """End a request; its readers get an output with finish reason `abort`. Unknown ids are ignored."""
        request = self._outputs.get(request_id)
        if request is not None:
            self._abort(self._outputs.abort(request))
            self._notify(request)

    @property
    def request_ids(self) -> list[str]:
        """Ids of the generations in flight."""
        return self._outputs.ids

    @property
    def in_flight(self) -> int:
        """Sequences that the engine has."""
        return len(self._outputs) + len(self._pooled)

    def forget(self, request: RequestState) -> None:
        """Nobody reads this request any more: abort it if it runs."""
        self._streams.pop(id(request), None)
        self._abort(self._outputs.abort(request))

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> list[int]:
        """Return the token ids of a conversation.

        Args:
            kwargs: As for `FrontModel.chat_ids`.

        Raises:
            RequestError: The model has no template, the template refuses the messages, or they are too long.
        """
        return self.model.chat_ids(messages, **kwargs)

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data and return its value. Raises the engine's `CoreError`."""
        self._check_alive()
        self.listen()
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            self.engine.send(Call(number, method, list(args)))
            return await future
        finally:
            self._calls.pop(number, None)

    async def close(self) -> None:
        """End every request and stop the engine. Harmless when repeated."""
        if self._failure is None:
            self._fail(EngineError("CORE-E150", "the engine was closed."))
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
            self._receiver = None
        await self.engine.close()
        self.model.plugins.sinks.close()

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _prepare(self, asked: GenerationRequest) -> Prepared:
        prompt: Any = asked.prompt
        text = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
        if isinstance(prompt, Conversation) or (isinstance(text, str) and len(text) > _LONG_TEXT):
            return await asyncio.to_thread(self.model.prepare, asked)
        return self.model.prepare(asked)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise EngineError(self._failure.code, self._failure.message, hint=self._failure.hint)

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

    def _abort(self, handles: list[int]) -> None:
        if handles and self._failure is None:
            try:
                self.engine.send(Abort(handles))
            except EngineError as error:
                self._fail(error)

    def _notify(self, request: RequestState) -> None:
        stream = self._streams.get(id(request))
        if stream is not None:
            stream.notify()
        if request.finished:
            self._streams.pop(id(request), None)

    async def _receive(self) -> None:
        try:
            while self._failure is None:
                self._dispatch(await self.engine.receive())
                await asyncio.sleep(0)  # a busy engine must not keep readers from their turn
        except CoreError as error:
            self._fail(
                error if isinstance(error, EngineError) else EngineError(error.code, error.message, hint=error.hint)
            )
        except Exception as error:
            logger.exception("the front end failed")
            self._fail(EngineError("CORE-E151", f"the front end failed: {type(error).__name__}: {error}."))

    def _dispatch(self, message: FromEngine) -> None:
        if isinstance(message, Outputs):
            self._distribute(message)
        elif isinstance(message, CallResult):
            future = self._calls.get(message.number)
            if future is not None and not future.done():
                settle(future, message)
        elif isinstance(message, Failed):
            raise CoreError.from_dict(message.error)

    def _distribute(self, outputs: Outputs) -> None:
        if outputs.stats is not None:
            self.stats = outputs.stats
            self.model.plugins.sinks.observe(outputs.stats)
        if self.model.pooling is not None:
            self._abort(self._pooled.process(outputs))
            return
        done = self._outputs.process(outputs)
        self._abort(done.aborts)
        for request in done.changed.values():
            self._notify(request)

    def _fail(self, error: EngineError) -> None:
        """The engine is gone: every open request and call learns it, once."""
        if self._failure is not None:
            return
        self._failure = error
        self._outputs.abort_all()
        self._pooled.fail_all(error)
        for stream in self._streams.values():
            stream.fail(error)
        self._streams.clear()
        self._gate.open()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineError(error.code, error.message, hint=error.hint))


def settle(future: asyncio.Future[Any], result: CallResult) -> None:
    """Give a call its result."""
    if result.error is None:
        future.set_result(result.value)
    else:
        future.set_exception(CoreError.from_dict(result.error))
