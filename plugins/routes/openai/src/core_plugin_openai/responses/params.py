"""From a body to what is asked of the model, and to what the answer says about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api import EngineClient
from core.api.bodies import invalid
from core_plugin_openai.responses.protocol import ResponsesBody
from core_plugin_openai.responses.tools import Tools
from core_plugin_openai.structured import response_form

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


def sampling(client: EngineClient, body: ResponsesBody, sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling parameters; without a limit the answer may be as long as the model allows.

    Args:
        sent: The body as it was sent.
    """
    fields = body.sampling(sent, client.plugin_fields)
    fields["max_tokens"] = body.max_output_tokens
    fields["logprobs"] = (body.top_logprobs or 0) if body.wants_logprobs else None
    fields["extra_args"] = body.vllm_xargs
    return fields


def asked_form(body: ResponsesBody) -> tuple[Mapping[str, Any] | None, Mapping[str, str]]:
    """Return what the text must look like, and what errors call the fields. Raises `RequestError` 400."""
    wanted = body.text.format if body.text is not None else None
    if wanted is None:
        return None, NAMES
    if wanted.type == "json_schema" and wanted.name is None:
        raise invalid("text.format.name", "is missing")
    form = response_form(wanted.model_dump(by_alias=True), param="text.format", nested=False)
    return (None, NAMES) if form is None else (form.structured, {**NAMES, **form.names})


def thinking(body: ResponsesBody) -> bool | None:
    """Return whether the model is to think; None leaves that to its template."""
    effort = body.reasoning.effort if body.reasoning is not None else None
    return None if effort is None else effort != "none"


def template_args(body: ResponsesBody) -> dict[str, Any]:
    """Return the variables of the chat template: how much to think, and the client's own."""
    effort = body.reasoning.effort if body.reasoning is not None else None
    return {**({} if effort is None else {"reasoning_effort": effort}), **(body.chat_template_kwargs or {})}


def call_limit(body: ResponsesBody) -> int | None:
    """Return after how many calls the answer is over."""
    return turn_limit(body, body.max_tool_calls)


def turn_limit(body: ResponsesBody, left: int | None) -> int | None:
    """Return after how many calls the model has to wait for what they give.

    Args:
        left: How many the answer may hold yet.
    """
    return 1 if body.parallel_tool_calls is False else left


def repeated(body: ResponsesBody, defaults: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
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
        "temperature": _said(body.temperature, defaults, "temperature"),
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": tools.given,
        "tools": list(tools.listed),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": _said(body.top_p, defaults, "top_p"),
        "truncation": body.truncation or "disabled",
    }


def _said(given: float | None, defaults: Mapping[str, Any], name: str) -> float:
    """Return what holds of a sampling parameter; without anything it is 1."""
    value: float = defaults.get(name, 1.0) if given is None else given
    return value
