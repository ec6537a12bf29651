"""From `GenerationRequest` to a generation: what every API does between its own body and its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from core.api.errors import RequestError
from core.frontend.answering.chat import ChatAnswer, chat_answer
from core.frontend.conversation import Conversation
from core.frontend.prompts import truncating
from core.frontend.request import GenerationRequest, renamed, spelling
from core.server.errors import ApiError
from core.server.interface import Prompt
from core.server.openai.generation import Generation
from core.server.state import ServerState
from core.tokenizer.meter import RenderTimeoutError, time_limit

MAX_SEQUENCES = 4096
THREAD_CHARS = 50_000
"""Characters from which on texts are rendered and tokenised in a thread, so that other requests go on."""

_INLINE_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class OpenChat:
    """A conversation that was rendered and is about to be answered."""

    generation: Generation
    answer: ChatAnswer


async def ready_chat(state: ServerState, request: GenerationRequest) -> tuple[list[int], ChatAnswer]:
    """Render a request whose prompt is a conversation; return its token ids, and how it will be answered.

    Raises:
        RequestError: The template refuses the conversation, it is too long, or a call that it demands cannot be
            enforced.
    """
    ids = await render(state, request)
    with spelling(request.names):
        answer = chat_answer(
            _conversation(request),
            ids,
            request.params,
            state.parser,
            state.llm.tokenizer,
            defaults=state.options.model.default_chat_template_kwargs,
            grammars=state.llm.grammar_kinds,
        )
        if request.beams is not None:
            request.beams.params(answer.params)  # nothing is enforced of beams
    return ids, answer


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
    ids, answer = await ready_chat(state, request)
    held = replace(request, params=answer.params)
    return OpenChat(_generation(state, [{"prompt_token_ids": ids}], [held], name, interval), answer)


def open_generation(
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
    chat = _conversation(request)
    foreign = chat.template is not None and chat.template not in state.llm.template_names
    if foreign and not state.options.server.trust_request_chat_template:
        said = "templates of requests are not run here; the server's own is set with --chat-template"
        refusal = RequestError(f"template: {said}", param="template", code="unsupported_parameter")
        raise renamed(refusal, request.names)

    def work() -> list[int]:
        with spelling(request.names):
            return state.llm.render_chat(chat, request.cut)

    if chat.template is None and chat.chars <= THREAD_CHARS:
        try:
            with time_limit(_INLINE_SECONDS), spelling(request.names):
                return await state.llm.tokenize_chat(chat, request.cut)
        except RenderTimeoutError:
            pass  # again, where it keeps nobody waiting
    return await asyncio.get_running_loop().run_in_executor(state.renderers, work)


async def render_alone(state: ServerState, request: GenerationRequest) -> list[int]:
    """As `render`, for requests that end with it: they count for admission. Raises `ApiError` 503 as well."""
    with state.admitted():
        return await render(state, request)


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
        caller=first.caller,
        names=names,
        interval=interval,
        beams=first.beams,
    )


def _conversation(request: GenerationRequest) -> Conversation:
    if request.conversation is None:
        raise TypeError("only requests whose prompt is a Conversation are rendered")
    return request.conversation
