"""`POST /v1/completions`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core.api.bodies import invalid
from core.frontend.request import GenerationRequest, spelling
from core.server.entry import open_generation
from core.server.errors import ApiError
from core.server.generation import new_id
from core.server.openai.completion_format import CompletionFormat, Wanted
from core.server.openai.job import ApiJob
from core.server.openai.params import (
    NAMES,
    beam_rules,
    check_stream,
    completion_params,
    interval,
    rendered_only,
    tokens_as_ids,
    treatment,
    unasked_usage,
    unsampled,
)
from core.server.openai.prompts import parse_prompts
from core.server.openai.protocol import CompletionBody, StreamOptions
from core.server.state import ServerState
from core.server.streaming import JobResponse


async def completions(state: ServerState, request: Request) -> Response:
    """Validate and hand the generation to a response that runs it."""
    body, fields = await state.read(request, CompletionBody)
    check_stream(body)
    job, headers = completion_job(state, body, fields)
    return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers)


def completion_job(state: ServerState, body: CompletionBody, fields: dict[str, Any]) -> tuple[ApiJob, dict[str, str]]:
    """Return what answers a body, and the headers that belong to the answer. Raises `ApiError`, `RequestError`."""
    unread = {**unsampled(body), **rendered_only(body), **unasked_usage(body)}
    headers = state.unread_fields({**fields, **unread}, CompletionBody.model_fields.keys() - unread)
    requests = completion_requests(body, state)
    generation = open_generation(
        state, requests, new_id("cmpl"), interval=interval(body, state), prompt_only=body.max_tokens == 0
    )
    format = CompletionFormat(state.llm.tokenizer, requests[0].params.n, _wanted(state, body))
    return ApiJob(generation, format, body.stream_options or StreamOptions()), headers


def _wanted(state: ServerState, body: CompletionBody) -> Wanted:
    return Wanted(
        echo=bool(body.echo),
        logprobs=body.logprobs is not None or bool(body.logprob_token_ids),
        prompt_logprobs=body.prompt_logprobs is not None,
        token_ids=bool(body.return_token_ids),
        tokens_as_ids=tokens_as_ids(body, state),
        prompt_text=bool(body.return_prompt_text),
        prompt_only=body.max_tokens == 0,
    )


def completion_requests(body: CompletionBody, state: ServerState) -> list[GenerationRequest]:
    """Return what a completion body asks for, prompt by prompt. Raises `RequestError` and `ApiError`."""
    if body.use_beam_search and body.stream:
        raise ApiError(400, "Completions of a beam search are not streamed.", param="stream")
    if body.use_beam_search and body.echo and body.logprobs is not None:
        raise invalid("echo", "with logprobs cannot be used together with beam search")
    with spelling(NAMES):
        params, rest = completion_params(body, state), treatment(body)
        beams = beam_rules(body, params)
        prompts = parse_prompts(
            body.prompt,
            state.llm,
            add_special_tokens=body.add_special_tokens is not False,
            whole=body.truncate_prompt_tokens is None,
        )
        return [GenerationRequest(prompt=prompt, params=params, beams=beams, names=NAMES, **rest) for prompt in prompts]
