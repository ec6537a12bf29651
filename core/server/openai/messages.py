"""From the fields of chat bodies to a `Conversation`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.api.errors import RequestError
from core.frontend.conversation import REASONING_NAMES, Conversation, ToolChoice
from core.server.openai.protocol import ChatBody, TokenizeBody

__all__ = ["REASONING_NAMES", "conversation", "tool_choice"]

_MODES: Mapping[str, ToolChoice] = {
    "auto": ToolChoice("auto"),
    "none": ToolChoice("none"),
    "required": ToolChoice("required"),
}


def conversation(body: ChatBody | TokenizeBody, **fields: Any) -> Conversation:
    """Return the conversation of a body. Raises `RequestError`.

    Args:
        fields: Of `Conversation`, that only some bodies have.
    """
    continued = bool(body.continue_final_message)
    if continued and body.add_generation_prompt:
        said = "continue_final_message and add_generation_prompt exclude each other"
        raise RequestError(said, param="continue_final_message")
    return Conversation(
        messages=body.messages or (),
        tools=body.tools or (),
        documents=body.documents,
        add_generation_prompt=not continued and body.add_generation_prompt is not False,
        continue_final_message=continued,
        template=body.chat_template or None,
        template_args=fields.pop("template_args", None) or body.chat_template_kwargs or {},
        **fields,
    )


def tool_choice(given: str | Mapping[str, Any] | None) -> ToolChoice:
    """Return the choice that `tool_choice` states. Raises `RequestError`."""
    if given is None:
        return _MODES["auto"]
    if isinstance(given, str) and given in _MODES:
        return _MODES[given]
    function = given.get("function") if isinstance(given, Mapping) and given.get("type") == "function" else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        said = "tool_choice must be 'none', 'auto', 'required' or {'type': 'function', 'function': {'name': ...}}"
        raise RequestError(said, param="tool_choice")
    return ToolChoice("function", name)
