"""`AsyncLLM`: requests of many tasks on one engine that runs on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any

from core.api.errors import CoreError, EngineError, RequestError
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig, Options
from core.engine.client import AsyncEngine
from core.engine.messages import Abort, Call, CallResult, Failed, FromEngine, Outputs, Stats
from core.engine.sampling import SamplingParams
from core.frontend.inputs import Prepared, PromptInput
from core.frontend.model import FrontModel, Resolved
from core.frontend.outputs import OutputProcessor
from core.frontend.requests import RequestState
from core.frontend.results import RequestOutput

logger = logging.getLogger(__name__)

_LONG_TEXT = 16384
"""Characters from which on a prompt is tokenised in a thread, so that other requests' tokens keep flowing."""


class OutputStream:
    """The outputs of one request, as an async iterator; `close` before its end aborts the request.

    Outputs are not queued: what arrives while nobody waits is merged into the next one.
    """

    def __init__(self, owner: AsyncLLM, request: RequestState, *, delta: bool) -> None:
        self.request_id = request.request_id
        self._owner, self._request, self._delta = owner, request, delta
        self._news = asyncio.Event()
        self._failure: EngineError | None = None
        self._ended = False

    def notify(self) -> None:
        """There is something to take."""
        self._news.set()

    def fail(self, error: EngineError) -> None:
        """The engine is gone; the next read raises."""
        self._failure = error
        self._news.set()

    def __aiter__(self) -> OutputStream:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._ended:
            raise StopAsyncIteration
        await self._news.wait()
        self._news.clear()
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


class AsyncLLM:
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
        prompt: PromptInput,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        delta: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Yield outputs until the request has finished; closing or cancelling the iterator aborts it.

        Args:
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
        prompt: PromptInput,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
        delta: bool = False,
    ) -> OutputStream:
        """Check a request and hand it to the engine; like `generate`, but refusals come before the first read."""
        self._check_alive()
        prepared = await self._prepare(prompt, params or self.default_params)
        prepared, priority = self.model.admit(prepared, priority)
        self._check_alive()
        self._check_room(prepared.params.n)
        request, messages = self._outputs.add(prepared, request_id=request_id, priority=priority, cache_salt=cache_salt)
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

    async def abort(self, request_id: str) -> None:
        """End a request; its readers get an output with finish reason `abort`. Unknown ids are ignored."""
        request = self._outputs.get(request_id)
        if request is not None:
            self._abort(self._outputs.abort(request))
            self._notify(request)

    def forget(self, request: RequestState) -> None:
        """Nobody reads this request any more: abort it if it runs."""
        self._streams.pop(id(request), None)
        self._abort(self._outputs.abort(request))

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **kwargs: Any) -> list[int]:
        """Return the token ids of a conversation.

        Args:
            kwargs: `tools`, `add_generation_prompt`, `continue_final_message`, `documents`, and the template's own.

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

    async def _prepare(self, prompt: PromptInput, params: SamplingParams) -> Prepared:
        text = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
        if isinstance(text, str) and len(text) > _LONG_TEXT:
            return await asyncio.to_thread(self.model.inputs.prepare, prompt, params)
        return self.model.inputs.prepare(prompt, params)

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise EngineError(self._failure.code, self._failure.message, hint=self._failure.hint)

    def _check_room(self, wanted: int) -> None:
        limits = self.config.options.scheduler
        most = limits.max_num_seqs + limits.max_waiting
        if len(self._outputs) + wanted > most:
            raise RequestError(
                f"the server is busy: {len(self._outputs)} of {most} sequences are running or waiting; try again later",
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
        for stream in self._streams.values():
            stream.fail(error)
        self._streams.clear()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineError(error.code, error.message, hint=error.hint))


def settle(future: asyncio.Future[Any], result: CallResult) -> None:
    """Give a call its result."""
    if result.error is None:
        future.set_result(result.value)
    else:
        future.set_exception(CoreError.from_dict(result.error))
