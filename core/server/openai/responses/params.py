"""From a body to what is asked of the model, and to what the answer says about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.bodies import invalid
from core.engine.participants.grammars import Grammar
from core.engine.sampling import SamplingParams
from core.frontend.answering.parsing import thinking_switches
from core.frontend.request import sampling_params
from core.server.openai.params import SAME_NAME
from core.server.openai.responses.protocol import ResponsesBody, TextFormat
from core.server.openai.responses.tools import Tools
from core.server.openai.structured import response_grammar

NAMES = {
    "messages": "input",
    "prompt": "input",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
    "extra_args": "vllm_xargs",
    "template_args": "chat_template_kwargs",
}
"""Field of a rule -> field of this API."""

_REPEATED = (
    "instructions",
    "previous_response_id",
    "max_output_tokens",
    "max_tool_calls",
    "user",
    "safety_identifier",
    "prompt_cache_key",
)


def response_params(body: ResponsesBody, defaults: Mapping[str, Any], max_model_len: int) -> SamplingParams:
    """Return the sampling parameters; without a limit the answer may be as long as the model allows.

    Raises:
        RequestError: A value is outside its range; wrap the call in `spelling(NAMES)`.
        ApiError: 400, `text.format` is incomplete.
    """
    fields: dict[str, Any] = {name: getattr(body, name) for name in SAME_NAME}
    fields["max_tokens"] = body.max_output_tokens
    fields["logprobs"] = (body.top_logprobs or 0) if body.wants_logprobs else None
    fields["extra_args"] = body.vllm_xargs
    fields["grammar"] = grammar(body.text.format) if body.text is not None else None
    return sampling_params(fields, defaults, max_model_len)


def grammar(wanted: TextFormat | None) -> Grammar | None:
    """Return what the text must look like. Raises `ApiError` or `RequestError` 400."""
    if wanted is None:
        return None
    if wanted.type == "json_schema" and wanted.name is None:
        raise invalid("text.format.name", "is missing")
    return response_grammar(wanted.model_dump(by_alias=True), param="text.format", nested=False)


def template_args(body: ResponsesBody) -> dict[str, Any]:
    """Return the variables of the chat template: how much to think, by the names templates know, and the client's."""
    effort = body.reasoning.effort if body.reasoning is not None else None
    thinks = {} if effort is None else {"reasoning_effort": effort, **thinking_switches(effort != "none")}
    return {**thinks, **(body.chat_template_kwargs or {})}


def call_limit(body: ResponsesBody) -> int | None:
    """Return after how many calls the answer is over."""
    return turn_limit(body, body.max_tool_calls)


def turn_limit(body: ResponsesBody, left: int | None) -> int | None:
    """Return after how many calls the model has to wait for what they give.

    Args:
        left: How many the answer may hold yet.
    """
    return 1 if body.parallel_tool_calls is False else left


def repeated(body: ResponsesBody, params: SamplingParams, tools: Tools) -> dict[str, Any]:
    """Return the fields of the response that repeat the request, with what holds where it said nothing."""
    reasoning = body.reasoning
    text = body.text.model_dump(by_alias=True, exclude_none=True) if body.text is not None else {}
    return {
        **{name: getattr(body, name) for name in _REPEATED},
        "background": bool(body.background),
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": (reasoning.summary or reasoning.generate_summary) if reasoning is not None else None,
        },
        "service_tier": "default",
        "temperature": params.temperature,
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": tools.given,
        "tools": list(tools.listed),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": body.truncation or "disabled",
    }
