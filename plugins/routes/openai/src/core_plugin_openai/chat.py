"""From a body of `POST /v1/chat/completions` to a `ChatRequest`, and to what answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.api import ChatRequest, EngineClient, RequestError, ToolChoice
from core_plugin_openai.chat_format import ChatFormat
from core_plugin_openai.job import FormattedJob
from core_plugin_openai.params import chat_fields, tokens_as_ids, unknown, unread
from core_plugin_openai.protocol import ChatBody, StreamOptions, TokenizeBody
from core_plugin_openai.shown import Shown

EFFORT = "reasoning_effort"
"""A field of the body that is a variable of some templates."""


async def chat_job(
    client: EngineClient, body: ChatBody, fields: Mapping[str, Any]
) -> tuple[FormattedJob, dict[str, str]]:
    """Return what answers a body, and the headers that belong to the answer. Raises `RequestError`."""
    headers = client.unread(
        unknown(client, body, fields, _effort(client, fields)) + _unread(client, body) + unread(body)
    )
    answer = await client.open(chat_request(client, body, fields), prefix="chatcmpl")
    format = ChatFormat(
        answer,
        scored=bool(body.logprobs),
        return_ids=bool(body.return_token_ids),
        echo=_tail(body.messages) if body.echo else "",
        shown=Shown(
            reasoning=body.include_reasoning is not False,
            many_calls=body.parallel_tool_calls is not False,
            tokens_as_ids=tokens_as_ids(body, client.settings["return_tokens_as_token_ids"]),
            prompt_text=bool(body.return_prompt_text),
        ),
    )
    return FormattedJob(answer, format, client.model_name, body.stream_options or StreamOptions()), headers


def chat_request(client: EngineClient, body: ChatBody, fields: Mapping[str, Any]) -> ChatRequest:
    """Return what a chat body asks for. Raises `RequestError`."""
    return ChatRequest(
        **conversation(body),
        tool_choice=ToolChoice.read(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        thinking=False if fields.get(EFFORT) == "none" else None,
        template_args={**_effort(client, fields), **(body.chat_template_kwargs or {})},
        **chat_fields(client, body, fields),
    )


def conversation(body: ChatBody | TokenizeBody) -> dict[str, Any]:
    """Return the fields of a `ChatRequest` that say what is rendered. Raises `RequestError`."""
    continued = bool(body.continue_final_message)
    if continued and body.add_generation_prompt:
        said = "continue_final_message and add_generation_prompt exclude each other"
        raise RequestError(said, param="continue_final_message")
    return {
        "messages": body.messages or (),
        "tools": body.tools or (),
        "documents": body.documents,
        "continued": continued,
        "opened": body.add_generation_prompt is not False,
        "add_special_tokens": bool(body.add_special_tokens),
        "template": body.chat_template or None,
    }


def _unread(client: EngineClient, body: ChatBody) -> list[str]:
    """Return the fields that are meant for the template and neither the model's template nor a parser reads."""
    known = client.template_variables
    if known is None or body.chat_template is not None:
        return []
    if ToolChoice.read(body.tool_choice).demands:
        known |= {"tools"}  # a demanded call is read with or without a parser
    unread = [f"chat_template_kwargs.{name}" for name in body.chat_template_kwargs or () if name not in known]
    return unread + [name for name in ("tools", "documents") if getattr(body, name) and name not in known]


def _effort(client: EngineClient, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return how hard to think, as far as the model's template knows of it."""
    effort, variables = fields.get(EFFORT), client.template_variables or frozenset()
    return {EFFORT: effort} if isinstance(effort, str) and EFFORT in variables else {}


def _tail(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of the last message if it is the assistant's, which the answer may continue."""
    content = messages[-1].get("content") if messages[-1].get("role") == "assistant" else ""
    return content or "" if isinstance(content, str | None) else "\n".join(part["text"] for part in content)
