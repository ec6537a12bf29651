"""`POST /v1/completions`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from core.server.body import ignored_fields, read_model
from core.server.errors import ApiError
from core.server.openai.completion_format import CompletionFormat, Wanted
from core.server.openai.generation import Generation, new_id
from core.server.openai.job import ApiJob
from core.server.openai.params import check_stream, completion_params
from core.server.openai.prompts import parse_prompts
from core.server.openai.protocol import CompletionBody, StreamOptions, refuse_unsupported
from core.server.state import ServerState
from core.server.streaming import JobResponse

MAX_SEQUENCES = 4096


class CompletionRoute:
    """Answers completion requests."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, request: Request) -> Response:
        """Validate and hand the generation to a response that runs it."""
        state = self._state
        body, fields = await read_model(request, CompletionBody, state.options.server.max_body_bytes)
        state.check_model(body.model)
        refuse_unsupported(fields)
        check_stream(body)
        params = completion_params(body, state.defaults, state.llm.max_model_len)
        prompts = parse_prompts(body.prompt, state.llm, add_special_tokens=body.add_special_tokens is not False)
        if len(prompts) * params.n > MAX_SEQUENCES:
            message = f"{len(prompts)} prompts with n = {params.n} are more than {MAX_SEQUENCES} sequences."
            raise ApiError(400, message, param="n")
        state.admit(len(prompts) * params.n)
        generation = Generation(
            state,
            prompts,
            params,
            new_id("cmpl"),
            priority=body.priority or 0,
            cache_salt=body.cache_salt,
            prompt_only=body.max_tokens == 0,
        )
        format = CompletionFormat(state.llm.tokenizer, params.n, _wanted(body))
        job = ApiJob(generation, format, body.stream_options or StreamOptions())
        headers = ignored_fields(fields, CompletionBody.model_fields)
        return JobResponse(state.lifecycle, job, stream=bool(body.stream), headers=headers)


def _wanted(body: CompletionBody) -> Wanted:
    return Wanted(
        echo=bool(body.echo),
        logprobs=body.logprobs is not None,
        prompt_logprobs=body.prompt_logprobs is not None,
        token_ids=bool(body.return_token_ids),
        prompt_only=body.max_tokens == 0,
    )
