"""From Ollama's requests to those of the engine."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from core.api import ChatRequest, EngineClient, RequestError, TextRequest
from core_plugin_ollama.bodies import SAME_NAME, ChatBody, GenerateBody, Generated, Message, Options

_NO_EFFECT_AT = {"typical_p": (1.0,), "tfs_z": (1.0, 0.0), "mirostat": (0,)}
_LEVELS = frozenset({"low", "medium", "high", "max"})

_IMAGES = "this server reads text only: leave images out"
_REFUSED = {
    "template": "the model's own chat template is used; set another one with --chat-template at the server's start",
    "suffix": "insertion before a suffix is not available",
    "context": "send the messages of the conversation to the chat route instead",
    "images": _IMAGES,
}
_NAMES: Mapping[str, str] = {
    **{name: f"options.{name}" for name in (*SAME_NAME, "stop")},
    "max_tokens": "options.num_predict",
    "repetition_penalty": "options.repeat_penalty",
    "logprobs": "top_logprobs",
    "structured": "format",
    "structured.json": "format",
}
"""Field of a rule -> Ollama's."""


def chat_request(body: ChatBody, client: EngineClient) -> ChatRequest:
    """Return what `/api/chat` asks for. Raises `RequestError`."""
    abilities, model = client.abilities, body.asked
    if body.tools and "tools" not in abilities:
        raise RequestError(f"{model} does not support tools: the server has no --tool-parser", param="tools")
    asked = {**_asked(body, client), **_thinking(body.think, abilities, model)}
    return ChatRequest(messages=_messages(body.messages or ()), tools=body.tools or (), **asked)


def generate_request(body: GenerateBody, client: EngineClient) -> ChatRequest | TextRequest:
    """Return what `/api/generate` asks for: a conversation, or with `raw` a text. Raises `RequestError`."""
    for name, why in _REFUSED.items():
        if getattr(body, name):
            raise RequestError(f"{name}: {why}", param=name)
    asked, prompt = _asked(body, client), body.prompt or ""
    if body.raw:
        if body.system or body.think or body.logprobs:
            raise RequestError("raw prompts take neither system nor think nor logprobs", param="raw")
        return TextRequest(prompts=[prompt], **asked)
    system = [{"role": "system", "content": body.system}] if body.system else []
    asked |= _thinking(body.think, client.abilities, body.asked)
    return ChatRequest(messages=[*system, {"role": "user", "content": prompt}], **asked)


def _asked(body: Generated, client: EngineClient) -> dict[str, Any]:
    """Return the fields that both kinds of request have."""
    further = client.plugin_fields
    sampling = _sampling(body.options or Options(), further)
    if body.logprobs:
        sampling["logprobs"] = body.top_logprobs or 0
    names = {**_NAMES, **{name: f"options.{name}" for name in further}}
    return {"sampling": sampling, "structured": _format(body.format), "fitted": True, "names": names}


def _sampling(options: Options, further: Collection[str]) -> dict[str, Any]:
    for name, harmless in _NO_EFFECT_AT.items():
        value = getattr(options, name)
        if value is not None and value not in harmless:
            raise RequestError(f"options.{name} is not available; use top_p or min_p", param=f"options.{name}")
    fields = {**options.sampling(options.model_extra or {}, further), "stop": options.stop}
    if options.repeat_last_n != 0:
        fields["repetition_penalty"] = options.repeat_penalty
    if options.seed is not None and options.seed < 0:
        fields["seed"] = None
    # -1 and -2: as long as it gets
    limited = options.num_predict is not None and options.num_predict > 0
    return {**fields, "max_tokens": options.num_predict if limited else None}


def _format(wanted: str | dict[str, Any] | None) -> dict[str, Any] | None:
    if not wanted and wanted != {}:
        return None
    if isinstance(wanted, dict):
        return {"json": wanted}
    if wanted == "json":
        return {"json_object": True}
    raise RequestError('format must be "json" or a JSON schema', param="format")


def _thinking(think: bool | str | None, abilities: frozenset[str], model: str) -> dict[str, Any]:
    if think is None or (think is False and "thinking" not in abilities):
        return {}
    if isinstance(think, str) and think not in _LEVELS:
        raise RequestError(f"think must be a boolean or one of {', '.join(sorted(_LEVELS))}", param="think")
    if "thinking" not in abilities:
        raise RequestError(
            f"{model} does not support thinking: the server has no parser that reads its thinking", param="think"
        )
    level = {"reasoning_effort": think} if isinstance(think, str) else {}
    return {"thinking": bool(think), "template_args": level}


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return OpenAI's messages; answers of tools get the ids of the calls that they answer."""
    found: list[dict[str, Any]] = []
    open_calls: deque[tuple[str, str]] = deque()  # name and id of calls without an answer
    for number, message in enumerate(messages):
        if message.images:
            raise RequestError(f"messages.{number}.images: {_IMAGES}", param=f"messages.{number}.images")
        plain: dict[str, Any] = {"role": message.role, "content": message.content or ""}
        if message.thinking:
            plain["reasoning"] = message.thinking
        if message.tool_calls:
            calls = enumerate(message.tool_calls)
            plain["tool_calls"] = [_call(call, f"call_{number}_{place}") for place, call in calls]
            open_calls.extend((call["function"]["name"], call["id"]) for call in plain["tool_calls"])
        if message.role == "tool":
            plain |= _answered(message, open_calls)
        found.append(plain)
    return found


def _call(call: Any, name: str) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": json.dumps(call.function.arguments)}
    return {"id": call.id or name, "type": "function", "function": function}


def _answered(message: Message, open_calls: deque[tuple[str, str]]) -> dict[str, Any]:
    """Return which call a tool's message answers: the one it names, else the first of its tool, else the first."""
    same = (call for call in open_calls if message.tool_name in (None, call[0]))
    by_id = (call for call in open_calls if message.tool_call_id == call[1])
    call = next(by_id, None) or next(same, None)
    if call is not None:
        open_calls.remove(call)
    name = message.tool_name or (call[0] if call else None)
    answered = message.tool_call_id or (call[1] if call else None)
    return {key: value for key, value in (("name", name), ("tool_call_id", answered)) if value is not None}
