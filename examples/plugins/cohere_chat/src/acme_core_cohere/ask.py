"""From a body to what the engine is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acme_core_cohere.bodies import ChatBody
from core.api import ChatRequest, ToolChoice
from core.api.bodies import invalid

SAMPLING: Mapping[str, str] = {
    "max_tokens": "max_tokens",
    "stop": "stop_sequences",
    "temperature": "temperature",
    "top_p": "p",
    "top_k": "k",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Sampling parameter of core -> Cohere's field."""

_SAME_NAME = ("role", "content", "tool_calls", "tool_call_id")
_CHOICES = {None: ToolChoice(), "REQUIRED": ToolChoice("required"), "NONE": ToolChoice("none")}


def chat_request(body: ChatBody) -> ChatRequest:
    """Return what a body asks for. Raises `RequestError`, in Cohere's names."""
    return ChatRequest(
        messages=[_message(message, f"messages[{index}]") for index, message in enumerate(body.messages)],
        tools=body.tools or (),
        tool_choice=_CHOICES[body.tool_choice],
        sampling={ours: getattr(body, theirs) for ours, theirs in SAMPLING.items()},
        structured=_structured(body),
        names={**SAMPLING, "structured": "response_format", "structured.json": "response_format.json_schema"},
    )


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a message in OpenAI's form. Cohere's differs in the plan of calls, and in results that are documents."""
    plain = {name: message[name] for name in _SAME_NAME if name in message}
    if message.get("tool_plan"):
        plain["reasoning"] = message["tool_plan"]
    if isinstance(message.get("content"), list):
        plain["content"] = [_text(part, f"{where}.content[{index}]") for index, part in enumerate(message["content"])]
    return plain


def _text(part: Any, where: str) -> dict[str, str]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "document":
        document = part.get("document")
        text = document.get("data") if isinstance(document, dict) else None
    else:
        text = part.get("text") if kind == "text" else None
    if not isinstance(text, str):
        raise invalid(where, "must be a text, or a document with text as its data")
    return {"type": "text", "text": text}


def _structured(body: ChatBody) -> dict[str, Any] | None:
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return None
    return {"json_object": True} if wanted.json_schema is None else {"json": wanted.json_schema}
