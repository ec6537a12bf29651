"""`EngineClient` over what the server serves: routes of plugins ask as clients of the server's own API do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from core.api.errors import RequestError
from core.api.fronts import TaskFront, Work
from core.api.kinds import AskChosen, Chosen, Kind, nobody
from core.api.pooling import Pooled, Pooler, PoolRequest
from core.api.record import EMPTY
from core.api.routes import GeneratedText
from core.api.sampling import SamplingField, SamplingView
from core.api.sampling_params import SamplingParams
from core.api.serving import ChatRequest, TextRequest
from core.api.sinks import EngineStats
from core.api.tokenizer import Tokenizer
from core.frontend.request import GenerationRequest
from core.frontend.sampling import sampling_params
from core.frontend.sinks import engine_stats
from core.frontend.tasks.refusals import does_not_generate
from core.selection.no_tokenizer import NoTokenizer
from core.server.account import note_error
from core.server.errors import as_api_error, log_unexpected
from core.server.operator import ServedOperator
from core.server.pooled import pooled, required_pooler, run_work
from core.server.serving.answer import ServedAnswer, open_answer
from core.server.serving.caller import caller_of
from core.server.serving.entry import as_asked, open_generation, render, render_alone, within
from core.server.serving.generation import new_id
from core.server.serving.model import abilities_of, facts_of, template_variables_of
from core.server.serving.rendered import rendered
from core.server.serving.request import chat_request, generation_requests
from core.server.state import Lifecycle, ServerState
from core.server.streaming import stopping

if TYPE_CHECKING:
    from core.server.interface import ServedLLM

T = TypeVar("T")


class ServedClient:
    """The running server, as routes of plugins see it."""

    def __init__(self, state: ServerState, settings: Mapping[str, Any] = EMPTY, chosen: AskChosen = nobody) -> None:
        self._state = state
        self._chosen = chosen
        self.settings = settings
        self.operator = ServedOperator(state)
        self._llm = state.llm
        self._abilities: frozenset[str] | None = None  # found when somebody asks, and then they stay

    @property
    def model_name(self) -> str:
        """Name the model is served under."""
        return self._llm.model_name

    @property
    def max_model_len(self) -> int:
        """Longest prompt plus output, in tokens."""
        return self._llm.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._llm.tokenizer

    @property
    def stats(self) -> EngineStats:
        """The engine's latest figures."""
        return engine_stats(self._llm.stats)

    @property
    def healthy(self) -> bool:
        """Whether the engine lives and moves on."""
        return self._llm.healthy

    @property
    def created(self) -> int:
        """When the server was started, in seconds since 1970."""
        return self._state.created

    @property
    def abilities(self) -> frozenset[str]:
        """Abilities of the served model."""
        if self._abilities is None:
            self._abilities = abilities_of(self._state)
        return self._abilities

    @property
    def facts(self) -> Mapping[str, Any]:
        """Facts about the checkpoint."""
        return facts_of(self._llm)

    @cached_property
    def template_variables(self) -> frozenset[str] | None:
        """Names in a request's template variables that have an effect."""
        return template_variables_of(self._state)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling parameters that hold where a request says nothing."""
        return self._state.defaults

    @property
    def plugin_fields(self) -> Mapping[str, SamplingField]:
        """Sampling parameters that plugins of the engine declare."""
        return self._llm.plugin_fields

    # -- generations -----------------------------------------------------------------------------------------------

    async def open(
        self, request: ChatRequest | TextRequest, *, prefix: str, name: str | None = None, turn: int = 0
    ) -> ServedAnswer:
        """Check, admit and render a request. Raises `RequestError`."""
        with self._asking():
            return await open_answer(request, self._state, prefix, name, turn)

    def check(self, request: ChatRequest | TextRequest) -> None:
        """Refuse what is wrong with a request as far as that shows. Raises `RequestError`."""
        with self._asking():
            generation_requests(request, self._state)

    def admit(self, sequences: int = 1) -> None:
        """Refuse so many more sequences while they cannot be taken. Raises `RequestError` 503."""
        with self._asking():
            self._state.admit(sequences)

    async def render(self, request: ChatRequest, *, admitted: bool = False) -> list[int]:
        """Return the tokens of a conversation. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), self._state.lifecycle.counted():
            wanted = chat_request(request, self._state)
            return (await (render if admitted else render_alone)(self._state, wanted)).tolist()

    async def describe(self, request: ChatRequest | TextRequest, *, offsets: bool = False) -> list[dict[str, Any]]:
        """Return what the engine would be sent for each prompt. Raises `RequestError`."""
        with self._asking():
            settle = within if request.fitted else as_asked
            return [
                await rendered(self._state, one, settle, offsets=offsets)
                for one in generation_requests(request, self._state)
            ]

    def chosen(self, kind: Kind | str) -> Sequence[Chosen]:
        """Return the chosen plugins of a kind that a plugin defines, or that this one drives. Raises `PluginError`."""
        return self._chosen(kind)

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served. Raises `RequestError` 404."""
        self._state.check_model(name)

    def unread(self, fields: Iterable[str], known: Collection[str] = ()) -> dict[str, str]:
        """Return the header that names the fields of a body which have no effect. Raises `RequestError`."""
        return self._state.unread_fields(fields, known)

    def _asking(self) -> _refusing:
        """Refuse generations where the engine has another task, and all that is refused while it is asked for."""
        return _refusing(self._state.lifecycle, self._llm)

    async def generate(
        self, prompt: str | Sequence[int], params: SamplingView | None = None
    ) -> AsyncIterator[GeneratedText]:
        """Yield what a generation has given so far. Raises `RequestError`."""
        chosen = params if isinstance(params, SamplingParams) else self._unsaid()
        asked, text = prompt if isinstance(prompt, str) else list(prompt), ""
        ids: tuple[int, ...] = ()
        with self._state.lifecycle.counted(), self._asking():
            request = GenerationRequest(prompt=asked, params=chosen, caller=caller_of())
            generation = open_generation(self._state, [request], new_id("generate"))
            async with aclosing(generation.outputs()) as outputs:
                async for _, output in outputs:
                    for first in [one for one in output.outputs if one.index == 0]:
                        text, ids = text + first.text, (*ids, *first.token_ids)
                        yield GeneratedText(text, ids, first.finish_reason)

    def _unsaid(self) -> SamplingParams:
        return sampling_params({}, self._state.defaults, self.max_model_len)

    # -- vectors ---------------------------------------------------------------------------------------------------

    def pooler(self, task: str | None = None) -> Pooler:
        """Return what the model can do that gives vectors. Raises `RequestError`."""
        found = required_pooler(self._state, task)
        return Pooler(found.tasks, found.shape, reads_text=not isinstance(self._llm.tokenizer, NoTokenizer))

    async def pool(self, request: PoolRequest[T], *, prefix: str) -> Pooled[T]:
        """Check, admit and run a request. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), self._state.lifecycle.counted():
            return await pooled(self._state, request, prefix)

    @property
    def front(self) -> TaskFront | None:
        """The front half of the engine's task."""
        return self._llm.front

    async def run(
        self, work: Work[T], *, priority: int = 0, cache_salt: str | None = None, user: str | None = None
    ) -> list[T]:
        """Admit and run work of `front`. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), self._state.lifecycle.counted():
            return await run_work(self._state, work, priority=priority, cache_salt=cache_salt, user=user)

    async def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), self._state.lifecycle.counted():
            return await self._state.tokenize(text, add_special_tokens=add_special_tokens)

    async def detokenize(self, ids: Sequence[int]) -> str:
        """Return the text of token ids. Raises `RequestError`."""
        with _refusing(self._state.lifecycle), self._state.lifecycle.counted(), self._state.admitted():
            return await asyncio.to_thread(self._llm.tokenizer.decode, ids, skip_special_tokens=False)

    # -- the server ------------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether the server ends what is being generated."""
        return self._state.lifecycle.stopped

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have work go on beside requests; a drain waits for it."""
        lifecycle = self._state.lifecycle
        task = asyncio.create_task(work)
        lifecycle.work.add(task)
        task.add_done_callback(lifecycle.work.discard)
        return task

    def error(self, raised: BaseException) -> RequestError:
        """Return what clients are told of what was raised."""
        if isinstance(raised, asyncio.CancelledError):
            return stopping().told()
        if isinstance(raised, Exception):
            log_unexpected(raised)
        return as_api_error(raised).told()

    async def call(self, method: str, *args: Any) -> Any:
        """Call a named engine method with plain data."""
        return await self._llm.call(method, *args)


class _refusing:  # noqa: N801 - read as a verb; a class costs a third of a generator
    """Turn what goes wrong into `RequestError`s, which is all that plugins know; the server's end is one too.

    Args:
        generates: Refused unless it does.
    """

    __slots__ = ("_lifecycle", "_llm")

    def __init__(self, lifecycle: Lifecycle, generates: ServedLLM | None = None) -> None:
        self._lifecycle, self._llm = lifecycle, generates

    def __enter__(self) -> None:
        if self._llm is not None and (front := self._llm.front) is not None:
            refusal = does_not_generate(self._llm.model_name, front)
            note_error(as_api_error(refusal))
            raise refusal

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, asyncio.CancelledError):
            if not self._lifecycle.stopped:
                return
            # Not this task's end: whoever waits for it, in another task perhaps, has an error to say in its own words.
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
            raise stopping() from None
        if isinstance(error, RequestError):
            note_error(as_api_error(error))
        elif isinstance(error, Exception):
            log_unexpected(error)
            raise note_error(as_api_error(error)) from error
