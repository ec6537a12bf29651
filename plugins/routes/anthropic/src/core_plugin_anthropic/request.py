"""From a body of the Messages API to a `ChatRequest`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from core.api import ChatRequest, RequestError, ToolChoice
from core.api.bodies import invalid
from core_plugin_anthropic.conversation import read_system, read_tools, read_turns
from core_plugin_anthropic.protocol import MessagesBody, PromptBody

NAMES: Mapping[str, str] = {
    "stop": "stop_sequences",
    "template_args": "chat_template_kwargs",
    "thinking_token_budget": "thinking.budget_tokens",
}
"""Field of a rule -> field of this API."""

_MODES = {"auto": "auto", "any": "required", "none": "none", "tool": "function"}


def message_request(
    body: MessagesBody, sent: Mapping[str, Any], further: Collection[str], *, bounds: bool = True
) -> ChatRequest:
    """Return what is asked for. Raises `RequestError`, in this API's field names.

    Clients of this API ask for more tokens than any answer needs: the limit may be lowered to what there is room for.

    Args:
        sent: The body as it was sent, of which `further` are sampling parameters of plugins.
        bounds: Whether it is known where the model thinks, so that its thinking can be bounded.
    """
    sampling = {**body.sampling(sent, further), "seed": body.seed, "max_tokens": body.max_tokens}
    sampling["stop"] = body.stop_sequences
    sampling["thinking_token_budget"] = thinking_budget(body) if bounds else None
    wanted, where = _structured(body)
    return _request(
        body,
        sampling=sampling,
        structured=wanted,
        fitted=True,
        priority=body.priority or 0,
        cache_salt=body.cache_salt,
        user=None if body.metadata is None else body.metadata.user_id,
        names={**NAMES, "structured.json": where},
    )


def count_request(body: PromptBody) -> ChatRequest:
    """Return a request of which only the prompt matters."""
    return _request(body, names=NAMES)


def one_call(body: PromptBody) -> bool:
    """Whether an answer may hold no more than one call."""
    return body.tool_choice is not None and body.tool_choice.disable_parallel_tool_use is True


def thinking_budget(body: PromptBody) -> int | None:
    """Return after how many tokens the thinking ends; None leaves that to the model."""
    thinking = body.thinking
    return thinking.budget_tokens if thinking is not None and thinking.type != "disabled" else None


def _request(body: PromptBody, **asked: Any) -> ChatRequest:
    messages = [*read_system(body.system), *read_turns(body.messages)]
    return ChatRequest(
        messages=messages,
        tools=read_tools(body.tools),
        tool_choice=_choice(body),
        parallel_tool_calls=not one_call(body),
        continued=messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1],
        thinking=None if body.thinking is None else body.thinking.type != "disabled",
        template_args=_template_args(body),
        **asked,
    )


def _structured(body: PromptBody) -> tuple[Mapping[str, Any] | None, str]:
    """Return the JSON schema that the text must fit, and where the body has it."""
    newer = body.output_config.format if body.output_config else None
    if newer is not None and body.output_format is not None:
        raise invalid("output_format", "cannot be used together with output_config.format, which has replaced it")
    wanted, where = newer or body.output_format, "output_config.format" if newer else "output_format"
    return None if wanted is None else {"json": wanted.json_schema}, f"{where}.schema"


def _choice(body: PromptBody) -> ToolChoice:
    choice = body.tool_choice
    if choice is None:
        return ToolChoice()
    if choice.type == "tool" and choice.name is None:
        raise RequestError("tool_choice.name is missing: which tool must be called?", param="tool_choice.name")
    return ToolChoice(_MODES[choice.type], choice.name)  # type: ignore[arg-type]


def _template_args(body: PromptBody) -> dict[str, Any]:
    """Return the variables of the chat template: how much to think, and the client's own."""
    effort = body.output_config.effort if body.output_config is not None else None
    return {**({} if effort is None else {"reasoning_effort": effort}), **(body.chat_template_kwargs or {})}
