"""`LLM`: offline generation with an engine in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from typing import Any, Self, TypeVar, cast

from core.api.errors import CoreError, EngineError, RequestError
from core.api.fronts import TaskFront, Work
from core.api.pooling import PoolingFront
from core.api.requests import Caller
from core.api.runners import Timer
from core.api.sampling_params import SamplingParams
from core.api.tokenizer import Tokenizer
from core.config.resolved import EngineConfig
from core.engine.client import SyncEngine
from core.engine.messages import Abort, Call, CallResult, FromEngine, Outputs
from core.engine.profile import Profile, untimed
from core.frontend.answering.chat import chat_answer
from core.frontend.answering.message import message_of
from core.frontend.answering.parsing import AnswerParser, chosen_parser
from core.frontend.beams.calls import BeamCalls
from core.frontend.caller import NOBODY
from core.frontend.conversation import conversation_of
from core.frontend.inputs import Prepared
from core.frontend.model import FrontModel, Resolved
from core.frontend.outputs import OutputProcessor
from core.frontend.prompts import PromptInput, TokenizedPrompt, as_list
from core.frontend.request import GenerationRequest
from core.frontend.requests import RequestState
from core.frontend.results import RequestOutput
from core.frontend.stepping import step
from core.frontend.tasks.calls import PoolingCalls, run_work
from core.frontend.tasks.requests import TaskRequests
from core.plugins.active import enter

Messages = Sequence[Mapping[str, Any]]
T = TypeVar("T")


class LLM(PoolingCalls, BeamCalls):
    """One model for offline use.

    Example:
        >>> with LLM("model-directory") as llm:
        ...     outputs = llm.generate(["Hello"], SamplingParams(max_tokens=8))

    Args:
        model: Model reference; None takes the default model.
        options: Options by name, such as `max_num_seqs=4`. Without `max_model_len` the context is the model's own, or
            what fits into memory if that is less; a warning then says so.

    Raises:
        CoreError: The configuration or the engine fails; the message says why.
    """

    def __init__(self, model: str | None = None, *, dtype: str = "auto", **options: Any) -> None:
        from core.engine.client import open_sync
        from core.engine.environment import prepare_environment
        from core.frontend.overrides import options_with
        from core.selection.resolver import resolve
        from core.terminal.progress import WeightProgress

        with WeightProgress(what="fetching the model") as fetching:
            wanted = options_with(None, {"model": model, "dtype": dtype} | options)
            resolution = resolve(wanted, progress=fetching.update, shortens=True, prepare=prepare_environment)
        engine = open_sync(resolution.config)
        try:
            self._connect(resolution, engine)
        except BaseException:
            engine.close()
            raise

    @classmethod
    def from_parts(cls, resolution: Resolved, engine: SyncEngine) -> Self:
        """Return an `LLM` on an engine that exists."""
        llm = cls.__new__(cls)
        llm._connect(resolution, engine)
        return llm

    def _connect(self, resolution: Resolved, engine: SyncEngine) -> None:
        self.model = FrontModel(resolution, engine.ready)
        self._engine: SyncEngine | None = engine
        self._outputs = OutputProcessor(
            self.model.tokenizer, self.model.plugins.sinks.finished, self.model.plugins.halves.finished
        )
        self._pooled = TaskRequests(self.config.task, self.model.front)
        self._numbers = count(1)
        self._time(untimed)

    @property
    def config(self) -> EngineConfig:
        """Configuration of the engine."""
        return self.model.config

    @property
    def default_params(self) -> SamplingParams:
        """Sampling defaults of the model's makers."""
        return self.model.default_params

    def get_tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer."""
        return self.model.tokenizer

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
        priority: int | Sequence[int] | None = None,
        caller: Caller | Sequence[Caller] | None = None,
    ) -> list[RequestOutput]:
        """Generate for one prompt or many and return the outputs in the prompts' order.

        Args:
            prompts: Texts, lists of token ids or prompt objects; a list of integers is one prompt.
            sampling_params: One for all, or one per prompt; None takes the model's defaults.
            use_tqdm: Show progress on the terminal.
            priority: One for all, or one per prompt.
            caller: Who asks, for hooks, scheduling policies and stat sinks; one for all, or one per prompt.

        Raises:
            RequestError: A prompt or parameter cannot be served, or a grammar cannot be compiled; there are no outputs.
            EngineError: The engine failed.
        """
        self.model.check_generates()
        many = as_list(prompts)
        params = _spread("sampling_params", sampling_params, self.default_params, len(many))
        priorities = _spread("priority", priority, 0, len(many))
        callers = _spread("caller", caller, NOBODY, len(many))
        requests = [
            GenerationRequest(prompt=prompt, params=one, priority=rank, caller=who)
            for prompt, one, rank, who in zip(many, params, priorities, callers, strict=True)
        ]
        return self._answered(requests, lambda: self.model.inputs.prompts(many), shown=use_tqdm)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = False,
        caller: Caller | Sequence[Caller] | None = None,
        **template: Any,
    ) -> list[RequestOutput]:
        """Answer one conversation or many; `outputs[i].message` is what an answer says, calls and thinking apart.

        Calls and thinking are read where the options choose parsers (`tool_parser`, `reasoning_parser`); a call that
        `tool_choice` demands is enforced, and read without a parser too.

        Args:
            caller: As for `generate`.
            template: Fields of `Conversation` (`tools`, `tool_choice`, `continue_final_message`, ...),
                `chat_template`, `chat_template_kwargs`, and variables of the template.

        Raises:
            RequestError: A conversation or parameter cannot be served, or a demanded call cannot be enforced.
            EngineError: The engine failed.
        """
        self.model.check_generates()
        single = not messages or isinstance(messages[0], Mapping)
        conversations = [cast(Messages, messages)] if single else cast("Sequence[Messages]", messages)
        chats = [conversation_of(one, template) for one in conversations]
        params = _spread("sampling_params", sampling_params, self.default_params, len(chats))
        callers = _spread("caller", caller, NOBODY, len(chats))
        prompts = [self.model.chat_prompt(chat) for chat in chats]
        answers = [
            chat_answer(
                chat,
                prompt.ids,
                one,
                self._parser,
                self.model.tokenizer,
                defaults=self.config.options.model.default_chat_template_kwargs,
                grammars=self.model.plugins.grammars,
            )
            for chat, prompt, one in zip(chats, prompts, params, strict=True)
        ]
        requests = [
            GenerationRequest(prompt=answer.chat, params=answer.params, caller=who)
            for answer, who in zip(answers, callers, strict=True)
        ]
        outputs = self._answered(requests, lambda: prompts, shown=use_tqdm)
        for answer, output in zip(answers, outputs, strict=True):
            for sequence in output.outputs:
                sequence.message = message_of(answer, sequence)
        return outputs

    @cached_property
    def _parser(self) -> AnswerParser | None:
        return chosen_parser(enter(self.config.plan), self.config.options.select.tool_parser)

    @property
    def front(self) -> TaskFront | None:
        """The front half of the engine's task, which makes work for `run`; None where it generates."""
        return self.model.front

    def run(self, work: Work[T], *, use_tqdm: bool = False) -> list[T]:
        """Run work that `front` has made, and return its results.

        Raises:
            RequestError: A plugin refuses a prompt; nothing was run.
            EngineError: The engine failed.
        """
        return self._pool(work, shown=use_tqdm)

    def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data and return its value. Raises the engine's `CoreError`."""
        engine = self._running()
        number = next(self._numbers)
        engine.send(Call(number, method, list(args)))
        while True:
            for message in step(engine):
                if isinstance(message, CallResult) and message.number == number:
                    if message.error is not None:
                        raise CoreError.from_dict(message.error)
                    return message.value

    @contextmanager
    def profile(self) -> Iterator[dict[str, list[float]]]:
        """Time the phases of every step inside; costs nothing outside.

        Yields:
            Filled at the end: phase -> count, total seconds, median, 99th percentile (see `core.engine.profile`).
        """
        report: dict[str, list[float]] = {}
        own = Profile()
        self.call("profile", True)
        self._time(own)
        try:
            yield report
        finally:
            self._time(untimed)
            report |= {**self.call("profile", False), **own.report()}

    def close(self) -> None:
        """Stop the engine and release what it holds. Harmless when repeated."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
            self.model.plugins.sinks.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ---------------------------------------------------------------------------------------------------------------

    def _time(self, timer: Timer) -> None:
        self._process = timer("detokenize", self._outputs.process)
        self._send = timer("send", self._running().send)

    def _running(self) -> SyncEngine:
        if self._engine is None:
            raise EngineError("CORE-E150", "the engine was closed.", hint="Make a new LLM.")
        return self._engine

    def _answered(
        self, requests: Sequence[GenerationRequest], read: Callable[[], Sequence[TokenizedPrompt]], *, shown: bool
    ) -> list[RequestOutput]:
        """Run requests.

        Args:
            read: Returns their prompts; called once the parameters are known to be right.
        """
        complete = {id(one.params): self.model.inputs.complete(one.params) for one in requests}
        admitted = [
            self.model.admit(self.model.inputs.fit(one, prompt, complete[id(one.params)]))
            for one, prompt in zip(requests, read(), strict=True)
        ]
        with _progress(len(admitted), shown=shown) as advance:
            return self._run(admitted, advance)

    def _run(self, admitted: Sequence[Prepared], advance: Any) -> list[RequestOutput]:
        engine = self._running()
        queue = deque(admitted)
        requests: list[RequestState] = []
        try:
            while queue or len(self._outputs):
                self._feed(engine, queue, requests)
                for message in step(engine):
                    advance(self._apply(engine, message, requests))
        except BaseException:
            self._abandon(engine)
            raise
        return [request.take(delta=False) for request in requests]

    def _feed(self, engine: SyncEngine, queue: deque[Prepared], requests: list[RequestState]) -> None:
        """Send requests as long as they fit the engine's waiting line; at least one is always on its way."""
        room = self.config.options.scheduler.max_waiting
        while queue and (not len(self._outputs) or len(self._outputs) + queue[0].params.n <= room):
            request, messages = self._outputs.add(queue.popleft())
            requests.append(request)
            for message in messages:
                self._send(message)

    def _apply(self, engine: SyncEngine, message: FromEngine, requests: Sequence[RequestState]) -> int:
        """Take in one message; return how many requests it finished. Raises `RequestError` for one that was refused."""
        if not isinstance(message, Outputs):
            return 0
        if message.stats is not None:
            self.model.plugins.sinks.observe(message.stats)
        done = self._process(message)
        if done.aborts:
            engine.send(Abort(done.aborts))
        finished = [request for request in done.changed.values() if request.finished]
        for request in finished:
            _check_served(request, requests)
        return len(finished)

    def _pooler(self) -> PoolingFront:
        self._running()
        return self.model.pooler()

    def _pool(self, work: Work[T], *, shown: bool) -> list[T]:
        engine = self._running()
        self.model.admit_work(work.prompts, NOBODY)
        room = self.config.options.scheduler.max_waiting
        with _progress(len(work.prompts), shown=shown) as advance:

            def observe(outputs: Outputs, finished: int) -> None:
                if outputs.stats is not None:
                    self.model.plugins.sinks.observe(outputs.stats)
                advance(finished)

            return run_work(engine, self._pooled, work, room, observe)

    def _abandon(self, engine: SyncEngine) -> None:
        """Leave the engine without work, so that it can be used again after an interrupt."""
        handles = [sequence.handle for request in self._outputs.abort_all() for sequence in request.sequences]
        try:
            engine.send(Abort(handles))
        except EngineError:
            return  # it is gone; the error under way says why


def _spread(name: str, given: Any, default: Any, size: int) -> list[Any]:
    if not isinstance(given, Sequence):
        return [default if given is None else given] * size
    if len(given) != size:
        raise RequestError(f"{name} has {len(given)} entries for {size} prompts", param=name)
    return list(given)


def _check_served(request: RequestState, requests: Sequence[RequestState]) -> None:
    """Raise what the engine found wrong with a request before it began, such as a grammar that is none."""
    for sequence in request.sequences:
        if sequence.error_param is not None:
            which = f"prompt {requests.index(request)}: " if len(requests) > 1 else ""
            raise RequestError(f"{which}{sequence.error}", param=sequence.error_param)


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Any]:
    if not shown:
        yield lambda finished: None
        return
    from rich.progress import Progress

    with Progress() as progress:
        task = progress.add_task("Prompts", total=total)
        yield lambda finished: progress.advance(task, finished)
