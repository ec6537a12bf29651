"""From request fields to `SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.engine.sampling import MAX_LOGPROBS, SamplingParams
from core.server.errors import ApiError
from core.server.openai.protocol import ChatBody, CompletionBody, GenerationBody

COMPLETION_MAX_TOKENS = 16

_SAME_NAME = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "min_tokens",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "seed",
    "prompt_logprobs",
    "skip_special_tokens",
)
_FROM_MODEL = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def model_defaults(params: SamplingParams) -> dict[str, Any]:
    """Return what a model's makers recommend where a request says nothing."""
    return {name: getattr(params, name) for name in _FROM_MODEL}


def chat_params(body: ChatBody, defaults: Mapping[str, Any], max_model_len: int) -> SamplingParams:
    """Return the parameters of a chat request; without a limit it may run up to the model's length."""
    if body.top_logprobs is not None and not body.logprobs:
        raise ApiError(400, "top_logprobs needs logprobs to be true.", param="top_logprobs")
    if not 0 <= (body.top_logprobs or 0) <= MAX_LOGPROBS:
        raise ApiError(400, f"top_logprobs must be between 0 and {MAX_LOGPROBS}.", param="top_logprobs")
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if limit is not None and limit < 1:
        name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        raise ApiError(400, f"{name} must be at least 1, got {limit}.", param=name)
    return _params(
        body,
        defaults,
        max_model_len,
        max_tokens=limit,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def completion_params(body: CompletionBody, defaults: Mapping[str, Any], max_model_len: int) -> SamplingParams:
    """Return the parameters of a plain completion.

    With `echo`, `max_tokens` may be 0 (the prompt is scored and nothing added): the engine is asked for one token.
    """
    limit = COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    changes: dict[str, Any] = {"max_tokens": 1 if limit == 0 and body.echo else limit, "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
        changes["prompt_logprobs"] = body.logprobs
    return _params(body, defaults, max_model_len, **changes)


def check_stream(body: GenerationBody) -> None:
    """Refuse combinations of streaming fields that make no sense. Raises `ApiError` 400."""
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream to be true.", param="stream_options")
    if body.stream and body.prompt_logprobs is not None:
        raise ApiError(400, "prompt_logprobs are not available in a stream.", param="prompt_logprobs")


def _params(body: GenerationBody, defaults: Mapping[str, Any], max_model_len: int, **changes: Any) -> SamplingParams:
    fields = dict(defaults)
    fields.update((name, value) for name in _SAME_NAME if (value := getattr(body, name)) is not None)
    params = SamplingParams(**{**fields, **changes})
    if params.min_tokens > max_model_len:
        message = f"min_tokens ({params.min_tokens}) is greater than the model's length ({max_model_len})."
        raise ApiError(400, message, param="min_tokens")
    return params
