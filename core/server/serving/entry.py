"""From `GenerationRequest` to a generation: what every API does between its own body and its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from core.api.errors import RequestError
from core.api.sampling_params import SamplingParams
from core.api.templates import RenderTimeoutError
from core.frontend.answering.chat import ChatAnswer, chat_answer
from core.frontend.prompts import PromptIds
from core.frontend.request import GenerationRequest
from core.frontend.spelling import renamed, spelling
from core.frontend.templating import time_limit
from core.server.errors import ApiError
from core.server.serving.generation import Generation
from core.server.state import ServerState

MAX_SEQUENCES = 4096
THREAD_CHARS = 50_000
"""Characters from which on texts are rendered and tokenised in a thread, so that other requests go on."""

_INLINE_SECONDS = 0.02

Settle = Callable[[SamplingParams, int], SamplingParams]
"""Change of the parameters by an API, once it is known how many tokens a conversation leaves room for."""


def as_asked(params: SamplingParams, room: int) -> SamplingParams:
    """Change nothing."""
    return params


def within(params: SamplingParams, room: int) -> SamplingParams:
    """Lower the limit of tokens to what the model's length leaves."""
    limit = params.max_tokens
    return params if limit is None or limit <= room or room < 1 else params.replace(max_tokens=room)


@dataclass(frozen=True, slots=True)
class OpenChat:
    """A conversation that was rendered and is about to be answered; nothing has been sent to the engine yet."""

    generation: Generation
    answer: ChatAnswer


async def ready_chat(
    state: ServerState, request: GenerationRequest, settle: Settle = as_asked, name: str | None = None
) -> tuple[GenerationRequest, ChatAnswer]:
    """Render a request whose prompt is a conversation; return it as the engine will have it, and what reads the answer.

    Args:
        name: What the request will be called while it is in flight.

    Raises:
        RequestError: The template refuses the conversation, it is too long, or a call that it demands cannot be
            enforced.
    """
    ids = await render(state, request)
    with spelling(request.names):
        answer = chat_answer(
            request.chat,
            ids,
            request.params,
            state.parser,
            state.llm.tokenizer,
            defaults=state.options.model.default_chat_template_kwargs,
            grammars=state.llm.grammar_kinds,
        )
        if request.beams is not None:
            request.beams.params(answer.params)  # nothing is enforced of beams
    params = settle(answer.params, state.llm.max_model_len - len(ids))
    return request.rendered(ids, params, name), answer


async def open_chat(
    state: ServerState,
    request: GenerationRequest,
    name: str,
    *,
    interval: int = 1,
    settle: Settle = as_asked,
) -> OpenChat:
    """Make a conversation ready that the server has taken; nothing has been sent to the engine yet.

    Args:
        name: Unique id of the generation (`new_id`).
        interval: Tokens that a stream gathers per event.

    Raises:
        RequestError: As `ready_chat`.
    """
    ready, answer = await ready_chat(state, request, settle, name)
    return OpenChat(_generation(state, [ready], name, interval), answer)


def open_generation(
    state: ServerState,
    requests: Sequence[GenerationRequest],
    name: str,
    *,
    interval: int = 1,
    admitted: bool = False,
    prompt_only: bool = False,
) -> Generation:
    """Return the generation of several prompts under one set of parameters (`n` sequences each).

    Args:
        admitted: It goes on with an answer that the server took before.
        prompt_only: Generated tokens are thrown away and not counted.

    Raises:
        ApiError: 400 too many sequences; 503, the server takes no more requests.
        RequestError: As `open_chat`.
    """
    sequences = len(requests) * requests[0].params.n
    if sequences > MAX_SEQUENCES:
        message = f"{len(requests)} prompts with n = {requests[0].params.n} are more than {MAX_SEQUENCES} sequences."
        raise ApiError(400, message, param=requests[0].names.get("n", "n"))
    if not admitted:
        state.admit(sequences)
    many = len(requests) > 1
    named = [one.named(f"{name}-{index}" if many else name) for index, one in enumerate(requests)]
    return _generation(state, named, name, interval, prompt_only=prompt_only)


def _generation(
    state: ServerState, requests: list[GenerationRequest], name: str, interval: int, *, prompt_only: bool = False
) -> Generation:
    own = requests[0].request_id
    shown = name if own is None else f"{name.partition('-')[0]}-{own}"
    return Generation(state, requests, shown, name=name, interval=interval, prompt_only=prompt_only)


async def render(state: ServerState, request: GenerationRequest) -> PromptIds:
    """Return the token ids of a request's conversation. Raises `RequestError`.

    Long conversations, templates of requests and templates that take their time are rendered beside the event loop.
    """
    chat = request.chat
    foreign = chat.template is not None and chat.template not in state.llm.template_names
    if foreign and not state.options.server.trust_request_chat_template:
        said = "templates of requests are not run here; the server's own is set with --chat-template"
        refusal = RequestError(f"template: {said}", param="template", code="unsupported_parameter")
        raise renamed(refusal, request.names)

    if chat.template is None and chat.chars <= THREAD_CHARS:
        try:
            with time_limit(_INLINE_SECONDS):
                return await state.llm.tokenize_chat(request)
        except RenderTimeoutError:
            pass  # again, where it keeps nobody waiting
    return await asyncio.get_running_loop().run_in_executor(state.renderers, state.llm.render_chat, request)


async def render_alone(state: ServerState, request: GenerationRequest) -> PromptIds:
    """As `render`, for requests that end with it: they count for admission. Raises `ApiError` 503 as well."""
    with state.admitted():
        return await render(state, request)
