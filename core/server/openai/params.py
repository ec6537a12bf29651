"""From request fields to `SamplingParams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.bodies import invalid
from core.engine.sampling import SamplingParams
from core.frontend.beams.outputs import BeamRules
from core.frontend.prompts import Truncation
from core.frontend.request import sampling_params
from core.server.caller import caller_of
from core.server.openai.protocol import PLUGIN_FIELDS, ChatBody, CompletionBody, GenerationBody, SharedFields
from core.server.openai.structured import requested_grammar
from core.server.state import ServerState

COMPLETION_MAX_TOKENS = 16

NAMES: Mapping[str, str] = {
    "template": "chat_template",
    "template_args": "chat_template_kwargs",
    "extra_args": "vllm_xargs",
    "beam_width": "n",
}
"""Fields of the request model that this API calls otherwise."""

SAME_NAME = (
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
    "skip_special_tokens",
    "thinking_token_budget",
    "repetition_detection",
)
"""Sampling fields that every OpenAI API here calls as `SamplingParams` does."""

_BY_CHANCE = ("temperature", "top_p", "top_k", "min_p", "seed")
_COMPLETIONS_TOO = ("n", "prompt_logprobs", "logprob_token_ids")


def chat_names(body: ChatBody) -> dict[str, str]:
    """Return the names of a chat request's fields, for `error.param`."""
    names = {**NAMES, "logprobs": "top_logprobs"}
    return names if body.max_completion_tokens is None else {**names, "max_tokens": "max_completion_tokens"}


def chat_params(body: ChatBody, state: ServerState) -> SamplingParams:
    """Return the parameters of a chat request; without a limit it may run up to the model's length."""
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", "needs logprobs to be true")
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return _params(body, state, max_tokens=limit, logprobs=(body.top_logprobs or 0) if body.logprobs else None)


def completion_params(body: CompletionBody, state: ServerState) -> SamplingParams:
    """Return the parameters of a plain completion.

    With `echo`, `max_tokens` may be 0 (the prompt is scored and nothing added): the engine is asked for one token.
    """
    limit = COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    changes: dict[str, Any] = {"max_tokens": 1 if limit == 0 and body.echo else limit, "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
        changes["prompt_logprobs"] = body.logprobs
    return _params(body, state, **changes)


def check_stream(body: GenerationBody) -> None:
    """Refuse combinations of streaming fields that make no sense. Raises `ApiError` 400."""
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "needs stream to be true")
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs", "are not available in a stream")


def beam_rules(body: GenerationBody, params: SamplingParams) -> BeamRules | None:
    """Return how to search, if the body asks for a beam search. Raises `ApiError` 400 and `RequestError`."""
    if not body.use_beam_search:
        given = {"length_penalty": body.length_penalty not in (None, 1), "early_stopping": bool(body.early_stopping)}
        for name in (name for name, said in given.items() if said):
            raise invalid(name, "belongs to beam search: it needs use_beam_search to be true")
        return None
    rules = BeamRules(
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        early_stopping=False if body.early_stopping is None else body.early_stopping,
    )
    rules.params(params)
    return rules


def unsampled(body: GenerationBody) -> dict[str, bool]:
    """Return the given fields that choose tokens by chance, which a beam search does not do."""
    return {name: True for name in _BY_CHANCE if body.use_beam_search and getattr(body, name) is not None}


def unasked_usage(body: GenerationBody) -> dict[str, bool]:
    """Return the option of a stream that has no effect alone, if it is given alone."""
    options = body.stream_options
    alone = options is not None and bool(options.continuous_usage_stats) and not options.include_usage
    return {"stream_options.continuous_usage_stats": True} if alone else {}


def treatment(body: GenerationBody) -> dict[str, Any]:
    """Return the fields of a `GenerationRequest` that say how it is treated."""
    cut = body.truncate_prompt_tokens
    if body.truncation_side is not None and cut is None:
        raise invalid("truncation_side", "needs truncate_prompt_tokens")
    return {
        "priority": body.priority or 0,
        "cache_salt": body.cache_salt,
        "request_id": body.request_id,
        "caller": caller_of(named_user(body)),
        "truncation": None if cut is None else Truncation(tokens=cut, side=body.truncation_side or "left"),
    }


def named_user(body: SharedFields) -> str | None:
    """Return the end user that a body names; `safety_identifier` is what has replaced `user`."""
    return body.user if body.safety_identifier is None else body.safety_identifier


def rendered_only(body: GenerationBody) -> dict[str, bool]:
    """Return the given fields that only the routes act on which show what a request becomes."""
    return {"return_token_offsets": True} if body.return_token_offsets else {}


def interval(body: SharedFields, state: ServerState) -> int:
    """Return how many tokens a piece of the answer gathers."""
    return (body.stream_interval or state.options.server.stream_interval) if body.stream else 1


def tokens_as_ids(body: SharedFields, state: ServerState) -> bool:
    """Whether log-probabilities name tokens by their ids."""
    given = body.return_tokens_as_token_ids
    return state.options.server.return_tokens_as_token_ids if given is None else given


def _arguments(body: GenerationBody) -> dict[str, Any] | None:
    """Return the arguments for plugins; None if there are none. A field that says 0 asks for nothing."""
    given = {name: getattr(body, name) for name in PLUGIN_FIELDS}
    named = {name: value for name, value in given.items() if value or value is False}
    return {**(body.vllm_xargs or {}), **named} if named else body.vllm_xargs


def _params(body: GenerationBody, state: ServerState, **changes: Any) -> SamplingParams:
    fields: dict[str, Any] = {name: getattr(body, name) for name in (*SAME_NAME, *_COMPLETIONS_TOO)}
    fields["extra_args"] = _arguments(body)
    fields["grammar"] = requested_grammar(body)
    defaults = {} if body.use_beam_search else state.defaults  # which are for sampling
    return sampling_params({**fields, **changes}, defaults, state.llm.max_model_len)
