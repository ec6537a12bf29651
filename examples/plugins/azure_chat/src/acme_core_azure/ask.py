"""From a body to what the engine is asked."""

from __future__ import annotations

from typing import Any

from acme_core_azure.bodies import ChatBody
from core.api import ChatRequest, ToolChoice
from core.api.bodies import invalid

SAMPLING = ("n", "stop", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty")
"""Sampling parameters, which have the same names here."""


def chat_request(body: ChatBody) -> ChatRequest:
    """Return what a body asks for. Raises `RequestError`."""
    limit = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    return ChatRequest(
        messages=body.messages,
        tools=body.tools or (),
        tool_choice=ToolChoice.read(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        sampling={**{name: getattr(body, name) for name in SAMPLING}, "max_tokens": getattr(body, limit)},
        structured=_structured(body),
        user=body.user,
        names={"max_tokens": limit, "structured": "response_format", "structured.json": "response_format.json_schema"},
    )


def _structured(body: ChatBody) -> dict[str, Any] | None:
    wanted = body.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return {"json_object": True}
    schema = (wanted.json_schema or {}).get("schema")
    if not isinstance(schema, dict):
        raise invalid("response_format.json_schema.schema", "must be a schema")
    return {"json": schema}
