"""A whole answer as a message, for front ends that do not stream."""

from __future__ import annotations

from typing import Any

from core.api.parsers import Reasoning, Text, ToolArguments, ToolStart
from core.frontend.answering.chat import ChatAnswer
from core.frontend.messages import REASONING_NAMES
from core.frontend.results import CompletionOutput


def message_of(answer: ChatAnswer, output: CompletionOutput) -> dict[str, Any]:
    """Return what a whole sequence says, as an assistant's message in OpenAI's form."""
    content, reasoning = "", ""
    calls: dict[int, dict[str, Any]] = {}
    for event in answer.reader().read(output):
        if isinstance(event, Text):
            content += event.text
        elif isinstance(event, Reasoning):
            reasoning += event.text
        elif isinstance(event, ToolStart):
            function = {"name": event.name, "arguments": ""}
            call_id = answer.call_id(event.name, event.index)
            calls[event.index] = {"id": call_id, "type": "function", "function": function}
        elif isinstance(event, ToolArguments):
            calls[event.index]["function"]["arguments"] += event.json
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message.update(dict.fromkeys(REASONING_NAMES, reasoning))
    if calls:
        message |= {"content": content or None, "tool_calls": [calls[index] for index in sorted(calls)]}
    return message
