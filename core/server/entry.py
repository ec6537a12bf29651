"""From `GenerationRequest` to a generation: what every API does between its own body and its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from core.api.errors import RequestError
from core.api.parsers import ParserContext
from core.engine.sampling import SamplingParams
from core.frontend.answering.forcing import enforced
from core.frontend.answering.parsing import AnswerParser, calls_before
from core.frontend.answering.reader import AnswerReader
from core.frontend.answering.thinking import after_thinking
from core.frontend.conversation import Conversation
from core.frontend.prompts import truncating
from core.frontend.request import GenerationRequest, renamed, spelling
from core.server.errors import ApiError
from core.server.interface import Prompt
from core.server.openai.generation import Generation
from core.server.state import ServerState
from core.tokenizer.meter import RenderTimeoutError, time_limit

MAX_SEQUENCES = 4096
_THREAD_CHARS = 50_000
_INLINE_SECONDS = 0.02


@dataclass(slots=True)
class OpenChat:
    """A conversation that was rendered and is about to be answered.

    Attributes:
        context: What parsers are made with.
        calls: Whether the answer may hold tool calls.
        calls_before: Calls that the conversation holds already.
        parser: Reads the answer; None passes its text on as it is.
    """

    generation: Generation
    context: ParserContext = field(default_factory=ParserContext)
    calls: bool = False
    calls_before: int = 0
    parser: AnswerParser | None = None

    def reader(self) -> AnswerReader:
        """Return what turns one sequence's outputs into parse events; one reader per sequence."""
        return AnswerReader(self.parser.make(self.context) if self.parser else None, calls=self.calls)

    def call_id(self, name: str, number: int) -> str:
        """Return the id of the answer's `number`-th call, of a function; the conversation's numbers go on."""
        if self.parser is None:
            raise TypeError("without a parser there are no calls")
        return self.parser.id_of(name, self.calls_before + number)


@dataclass(frozen=True, slots=True)
class ReadyChat:
    """A conversation as the engine is asked to answer it.

    Attributes:
        request: Its parameters hold what is enforced of the answer.
        chat: Its prompt.
        ids: The prompt's token ids.
        parser: Reads the answer; None passes its text on as it is.
    """

    request: GenerationRequest
    chat: Conversation
    ids: list[int]
    context: ParserContext
    parser: AnswerParser | None


async def ready_chat(state: ServerState, request: GenerationRequest) -> ReadyChat:
    """Render a request whose prompt is a conversation, and settle what its answer is held to.

    Raises:
        RequestError: The template refuses the conversation, it is too long, or a call that it demands cannot be
            enforced.
    """
    chat = request.conversation
    if chat is None:
        raise TypeError("ready_chat takes requests whose prompt is a Conversation")
    ids = await render(state, request)
    context = _context(state, chat, ids)
    with spelling(request.names):
        params, parser = enforced(chat, request.params, state.parser, context, grammars=_grammars(state))
    if params.grammar is request.params.grammar:  # that of calls knows about the thinking itself
        params = after_thinking(params, state.parser, context)
    with spelling(request.names):
        if request.beams is not None:
            request.beams.params(params)  # nothing is enforced of beams
    return ReadyChat(replace(request, params=_unskipped(state, params)), chat, ids, context, parser)


async def open_chat(
    state: ServerState, request: GenerationRequest, name: str, *, interval: int = 1, admitted: bool = False
) -> OpenChat:
    """Make a conversation ready; nothing has been sent to the engine yet.

    Args:
        name: Unique id of the generation (`new_id`).
        interval: Tokens that a stream gathers per event.
        admitted: It goes on with an answer that the server took before.

    Raises:
        ApiError: 503, the server takes no more requests.
        RequestError: As `ready_chat`.
    """
    if not admitted:
        state.admit(request.params.n)
    ready = await ready_chat(state, request)
    generation = _generation(state, [{"prompt_token_ids": ready.ids}], [ready.request], name, interval)
    before = calls_before(ready.chat.messages)
    return OpenChat(generation, ready.context, bool(ready.chat.offered), before, ready.parser)


async def open_generation(
    state: ServerState,
    requests: Sequence[GenerationRequest],
    name: str,
    *,
    interval: int = 1,
    prompt_only: bool = False,
) -> Generation:
    """Return the generation of several prompts under one set of parameters (`n` sequences each).

    Args:
        prompt_only: Generated tokens are thrown away and not counted.

    Raises:
        ApiError: 400 too many sequences; 503, the server takes no more requests.
        RequestError: As `open_chat`.
    """
    sequences = len(requests) * requests[0].params.n
    if sequences > MAX_SEQUENCES:
        message = f"{len(requests)} prompts with n = {requests[0].params.n} are more than {MAX_SEQUENCES} sequences."
        raise ApiError(400, message, param=requests[0].names.get("n", "n"))
    state.admit(sequences)
    prompts = [engine_prompt(request) for request in requests]
    generation = _generation(state, prompts, requests, name, interval)
    generation.prompt_only = prompt_only
    return generation


async def render(state: ServerState, request: GenerationRequest) -> list[int]:
    """Return the token ids of a request's conversation. Raises `RequestError`.

    Long conversations, templates of requests and templates that take their time are rendered beside the event loop.
    """
    chat = request.conversation
    if chat is None:
        raise TypeError("render takes requests whose prompt is a Conversation")
    own: frozenset[str] = getattr(state.llm, "template_names", frozenset())  # beyond the protocol
    foreign = chat.template is not None and chat.template not in own
    if foreign and not state.options.server.trust_request_chat_template:
        said = "templates of requests are not run here; the server's own is set with --chat-template"
        refusal = RequestError(f"template: {said}", param="template", code="unsupported_parameter")
        raise renamed(refusal, request.names)
    arguments = chat.arguments()
    if request.truncation is not None:
        arguments["truncation"] = (request.truncation, request.params.max_tokens)

    def work() -> list[int]:
        with spelling(request.names):
            return state.llm.render_chat(chat.messages, **arguments)

    if chat.template is None and chat.chars <= _THREAD_CHARS:
        tokenize = getattr(state.llm, "tokenize_chat", None)  # beyond the protocol: several conversations together
        try:
            with time_limit(_INLINE_SECONDS), spelling(request.names):
                return work() if tokenize is None else await tokenize(chat.messages, **arguments)
        except RenderTimeoutError:
            pass  # again, where it keeps nobody waiting
    return await asyncio.get_running_loop().run_in_executor(state.renderers, work)


def engine_prompt(request: GenerationRequest) -> Prompt:
    """Return a request's prompt as `ServedLLM.generate` takes it."""
    if isinstance(request.prompt, Conversation):
        raise TypeError("a conversation has to be rendered (ready_chat)")
    return cast(Prompt, truncating(request.prompt, request.truncation))


def _generation(
    state: ServerState, prompts: list[Prompt], requests: Sequence[GenerationRequest], name: str, interval: int
) -> Generation:
    first = requests[0]
    chat, names = first.conversation is not None, dict(first.names)
    if chat:  # the engine's side knows token ids only
        names.setdefault("prompt", names.get("messages", "messages"))
    shown = name if first.request_id is None else f"{name.partition('-')[0]}-{first.request_id}"
    return Generation(
        state,
        prompts,
        first.params,
        shown,
        engine_id=name,
        priority=first.priority,
        cache_salt=first.cache_salt,
        names=names,
        interval=interval,
        beams=first.beams,
    )


def _unskipped(state: ServerState, params: SamplingParams) -> SamplingParams:
    """Tags that are special tokens must stay in the text for the parser to see them."""
    if state.parser is None or not state.parser.special_tokens:
        return params
    return params.replace(skip_special_tokens=False)


def _grammars(state: ServerState) -> frozenset[str] | None:
    """Return the kinds of grammar that the engine knows; None when the front end does not say."""
    found: frozenset[str] | None = getattr(state.llm, "grammar_kinds", None)  # beyond the protocol
    return found


def _context(state: ServerState, chat: Conversation, ids: list[int]) -> ParserContext:
    if state.parser is None:
        return ParserContext()
    variables = {**state.options.model.default_chat_template_kwargs, **chat.template_args}
    return state.parser.context(state.llm.tokenizer, ids, chat.offered, variables)
