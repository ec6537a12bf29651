"""From a body of the Messages API to a `GenerationRequest`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.engine.participants.grammars import schema_grammar
from core.engine.sampling import SamplingParams
from core.frontend.answering.parsing import thinking_switches
from core.frontend.conversation import Conversation, ToolChoice
from core.frontend.request import GenerationRequest, sampling_params, spelling
from core.server.anthropic.conversation import read_system, read_tools, read_turns
from core.server.anthropic.protocol import MessagesBody, PromptBody
from core.server.caller import caller_of
from core.server.errors import ApiError, invalid

NAMES = {
    "stop": "stop_sequences",
    "template_args": "chat_template_kwargs",
    "thinking_token_budget": "thinking.budget_tokens",
}
"""Field of a rule -> field of this API."""

_SAME_NAME = ("temperature", "top_p", "top_k", "seed", "max_tokens")
_MODES = {"auto": "auto", "any": "required", "none": "none", "tool": "function"}


def message_request(
    body: MessagesBody, defaults: Mapping[str, Any], max_model_len: int, *, bounds: bool = True
) -> GenerationRequest:
    """Return what is asked for. Raises `RequestError` or `ApiError` 400, in this API's field names.

    Args:
        bounds: Whether it is known where the model thinks, so that its thinking can be bounded.
    """
    fields = _sampling(body)
    if bounds:
        fields["thinking_token_budget"] = thinking_budget(body)
    with spelling(NAMES):
        params = sampling_params(fields, defaults, max_model_len)
    caller = caller_of(body.metadata.user_id if body.metadata is not None else None)
    return _request(body, params, priority=body.priority or 0, cache_salt=body.cache_salt, caller=caller)


def count_request(body: PromptBody) -> GenerationRequest:
    """Return a request of which only the prompt matters."""
    return _request(body, SamplingParams())


def _request(body: PromptBody, params: SamplingParams, **treatment: Any) -> GenerationRequest:
    messages = [*read_system(body.system), *read_turns(body.messages)]
    tools = read_tools(body.tools)
    prefilled = messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]
    with spelling(NAMES):
        chat = Conversation(
            messages=messages,
            tools=tools,
            tool_choice=_choice(body),
            parallel_tool_calls=not one_call(body),
            add_generation_prompt=not prefilled,
            continue_final_message=prefilled,
            template_args=template_args(body),
        )
        return GenerationRequest(prompt=chat, params=params, names=NAMES, **treatment)


def within(params: SamplingParams, room: int) -> SamplingParams:
    """Lower the limit to what the model's length leaves: clients of this API ask for more than any answer needs."""
    limit = params.max_tokens
    return params if limit is None or limit <= room or room < 1 else params.replace(max_tokens=room)


def one_call(body: PromptBody) -> bool:
    """Whether an answer may hold no more than one call."""
    return body.tool_choice is not None and body.tool_choice.disable_parallel_tool_use is True


def thinking_budget(body: PromptBody) -> int | None:
    """Return after how many tokens the thinking ends; None leaves that to the model."""
    thinking = body.thinking
    return thinking.budget_tokens if thinking is not None and thinking.type != "disabled" else None


def _sampling(body: MessagesBody) -> dict[str, Any]:
    fields: dict[str, Any] = {name: getattr(body, name) for name in _SAME_NAME}
    fields["stop"] = body.stop_sequences
    newer = body.output_config.format if body.output_config else None
    if newer is not None and body.output_format is not None:
        raise invalid("output_format", "cannot be used together with output_config.format, which has replaced it")
    wanted, where = newer or body.output_format, "output_config.format" if newer else "output_format"
    fields["grammar"] = wanted and schema_grammar(wanted.json_schema, param=f"{where}.schema")
    return fields


def _choice(body: PromptBody) -> ToolChoice:
    choice = body.tool_choice
    if choice is None:
        return ToolChoice()
    if choice.type == "tool" and choice.name is None:
        raise ApiError(400, "tool_choice.name is missing: which tool must be called?", param="tool_choice.name")
    return ToolChoice(_MODES[choice.type], choice.name)  # type: ignore[arg-type]


def template_args(body: PromptBody) -> dict[str, Any]:
    """Return the variables of the chat template: whether and how much to think, and the client's own."""
    args: dict[str, Any] = {}
    if body.thinking is not None:
        args |= thinking_switches(body.thinking.type != "disabled")
    if body.output_config is not None and body.output_config.effort is not None:
        args["reasoning_effort"] = body.output_config.effort
    return {**args, **(body.chat_template_kwargs or {})}
