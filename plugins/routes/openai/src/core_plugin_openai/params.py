"""From the fields of a body to those of a request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from core.api import EngineClient
from core.api.bodies import invalid
from core.api.sampling_table import fields_of
from core_plugin_openai.protocol import PLUGIN_FIELDS, ChatBody, CompletionBody, GenerationBody, SharedFields
from core_plugin_openai.structured import requested_form

COMPLETION_MAX_TOKENS = 16

NAMES: Mapping[str, str] = {
    "template": "chat_template",
    "template_args": "chat_template_kwargs",
    "extra_args": "vllm_xargs",
    "beam_width": "n",
    "beams": "use_beam_search",
}
"""Fields of a request that this API calls otherwise."""

_BY_CHANCE = (*(one.name for one in fields_of("draw")), "seed")


def chat_fields(client: EngineClient, body: ChatBody, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `AnswerRequest`; without a limit the answer may be as long as the model allows.

    Args:
        sent: The body as it was sent.

    Raises:
        RequestError: 400, fields do not go together.
    """
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid("top_logprobs", "needs logprobs to be true")
    limit = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    names = {**NAMES, "logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    scores = (body.top_logprobs or 0) if body.logprobs else None
    return _fields(client, body, sent, names, max_tokens=limit, logprobs=scores)


def completion_fields(client: EngineClient, body: CompletionBody, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `TextRequest` but for its prompts.

    With `echo`, `max_tokens` may be 0: the prompt is scored and nothing added. Arguments as for `chat_fields`. Raises
    `RequestError`.
    """
    limit = COMPLETION_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    changes: dict[str, Any] = {"max_tokens": limit, "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None and body.prompt_logprobs is None:
        changes["prompt_logprobs"] = body.logprobs
    return {
        **_fields(client, body, sent, NAMES, **changes),
        "add_special_tokens": body.add_special_tokens is not False,
        "only_prompt": limit == 0 and bool(body.echo),
    }


def check_stream(body: GenerationBody) -> None:
    """Refuse combinations of streaming fields that make no sense. Raises `RequestError` 400."""
    if body.stream_options is not None and not body.stream:
        raise invalid("stream_options", "needs stream to be true")
    if body.stream and body.prompt_logprobs is not None:
        raise invalid("prompt_logprobs", "are not available in a stream")


def unknown(client: EngineClient, body: GenerationBody, sent: Iterable[str], also: Collection[str] = ()) -> list[str]:
    """Return the fields that were sent and that neither the body, nor a plugin of the engine, nor `also` knows."""
    known, further = type(body).model_fields, client.plugin_fields
    return [name for name in sent if name not in known and name not in further and name not in also]


def unread(body: GenerationBody) -> list[str]:
    """Return the given fields that have no effect beside the others.

    A beam search chooses no token by chance, offsets are for the routes that show what a request becomes, and figures
    as a stream goes on are of those that it ends with.
    """
    found = [name for name in _BY_CHANCE if getattr(body, name) is not None] if body.use_beam_search else []
    if body.return_token_offsets:
        found.append("return_token_offsets")
    options = body.stream_options
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        found.append("stream_options.continuous_usage_stats")
    return found


def named_user(body: SharedFields) -> str | None:
    """Return the end user that a body names; `safety_identifier` is what has replaced `user`."""
    return body.user if body.safety_identifier is None else body.safety_identifier


def gathered(body: SharedFields, usual: int) -> int:
    """Return how many tokens a piece of the answer gathers."""
    return (body.stream_interval or usual) if body.stream else 1


def tokens_as_ids(body: SharedFields, usual: bool) -> bool:
    """Whether log-probabilities name tokens by their ids."""
    given = body.return_tokens_as_token_ids
    return usual if given is None else given


def _fields(
    client: EngineClient, body: GenerationBody, sent: Mapping[str, Any], names: Mapping[str, str], **changes: Any
) -> dict[str, Any]:
    arguments, beams, form = _arguments(body), _beams(body), requested_form(body)
    return {
        "sampling": {**body.sampling(sent, client.plugin_fields), "extra_args": arguments, **changes},
        "structured": None if form is None else form.structured,
        "beams": beams,
        "truncate_prompt_tokens": body.truncate_prompt_tokens,
        "truncation_side": body.truncation_side,
        "interval": gathered(body, client.settings["stream_interval"]),
        "priority": body.priority or 0,
        "cache_salt": body.cache_salt,
        "request_id": body.request_id,
        "user": named_user(body),
        "names": names if form is None else {**names, **form.names},
    }


def _beams(body: GenerationBody) -> Mapping[str, Any] | None:
    """Return how to search, if the body asks for a beam search. Raises `RequestError` 400."""
    if body.use_beam_search:
        return {"length_penalty": body.length_penalty, "early_stopping": body.early_stopping}
    given = {"length_penalty": body.length_penalty not in (None, 1), "early_stopping": bool(body.early_stopping)}
    for name in (name for name, said in given.items() if said):
        raise invalid(name, "belongs to beam search: it needs use_beam_search to be true")
    return None


def _arguments(body: GenerationBody) -> dict[str, Any] | None:
    """Return the arguments for plugins; None if there are none. A field that says 0 asks for nothing."""
    given = {name: getattr(body, name) for name in PLUGIN_FIELDS}
    named = {name: value for name, value in given.items() if value or value is False}
    return {**(body.vllm_xargs or {}), **named} if named else body.vllm_xargs
