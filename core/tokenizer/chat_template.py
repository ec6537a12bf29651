"""Chat templates: conversations become prompts, in a sandbox."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from core.api.errors import CheckpointError, RequestError
from core.tokenizer.messages import plain_data, plain_messages

MAX_PROMPT_CHARS = 16 * 2**20
_MAX_REPEAT = 2**20
_WIDE_FORMAT = re.compile(r"\d{5}|\*")
_TAIL_MARK = "\ue000continue-final-message\ue000 "
"""Stands where a continued message ends; the blank shows whether the template trims its content."""


class ChatTemplate:
    """One compiled template.

    Args:
        source: Jinja source as Hugging Face checkpoints carry it.
        special: Named special tokens, visible to the template.
        max_chars: Longest prompt it may produce.

    Raises:
        CheckpointError: CORE-M112, the source is not a template.
    """

    def __init__(self, source: str, special: Mapping[str, Any], *, max_chars: int = MAX_PROMPT_CHARS) -> None:
        self._special = dict(special)
        self._max_chars = max_chars
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise CheckpointError(
                "CORE-M112",
                f"the chat template cannot be compiled: {error}.",
                hint="Give a working one with --chat-template FILE.",
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """Return the prompt's text.

        Args:
            messages: OpenAI's messages; content is a text or a list of text parts.
            tools: OpenAI's tools.
            add_generation_prompt: End with the start of the assistant's turn.
            continue_final_message: End inside the last message, so that the model goes on with it.
            kwargs: Further variables that the template reads (`enable_thinking`, ...).

        Raises:
            RequestError: The messages are malformed, or the template refuses them (the message is its own).
        """
        chat = plain_messages(messages)
        if continue_final_message:
            if add_generation_prompt:
                raise RequestError(
                    "continue_final_message and add_generation_prompt cannot both be true",
                    param="continue_final_message",
                )
            final = _mark_tail(chat)
        text = self._run(
            {
                **self._special,
                **plain_data(kwargs),
                "messages": chat,
                "tools": plain_data(tools),
                "documents": plain_data(documents),
                "add_generation_prompt": add_generation_prompt,
            }
        )
        return _cut_tail(text, final) if continue_final_message else text

    def _run(self, variables: dict[str, Any]) -> str:
        pieces, size = [], 0
        try:
            for piece in self._template.generate(variables):
                pieces.append(piece)
                size += len(piece)
                if size > self._max_chars:
                    raise RequestError(
                        f"the chat template makes a prompt of more than {self._max_chars} characters of these messages",
                        param="messages",
                        code="context_length_exceeded",
                    )
        except RequestError:
            raise
        except _RefusalError as error:
            raise RequestError(str(error), param="messages") from error
        except Exception as error:  # templates fail in every way that Python can
            raise RequestError(
                f"the chat template cannot render these messages: {type(error).__name__}: {error}", param="messages"
            ) from error
        return "".join(pieces)


def _mark_tail(chat: list[dict[str, Any]]) -> str:
    content = chat[-1].get("content")
    if not isinstance(content, str):
        raise RequestError("continue_final_message: the last message has no text to go on from", param="messages")
    chat[-1]["content"] = content + _TAIL_MARK
    return content


def _cut_tail(text: str, final: str) -> str:
    mark = _TAIL_MARK.rstrip()
    at = text.rfind(mark)
    if at < 0 or final.strip() not in text:
        raise RequestError(
            "continue_final_message: the chat template does not show the end of the last message", param="messages"
        )
    trimmed = not text.startswith(_TAIL_MARK, at)
    return text[:at].rstrip() if trimmed else text[:at]


class _RefusalError(Exception):
    """What a template says with `raise_exception`."""


def _raise_exception(message: object) -> NoReturn:
    raise _RefusalError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which prompts must not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Generation(Extension):
    """Accepts `{% generation %}`, which marks the assistant's part for training, as if it were not there."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own form

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Also refuses the operators that turn a short template into endless work."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or (operator == "%" and isinstance(left, str) and _WIDE_FORMAT.search(left)):
            raise SecurityError(f"operator {operator} is not available to chat templates in this form")
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if hasattr(value, "__len__") and isinstance(times, int) and len(value) * times > _MAX_REPEAT:
                    raise SecurityError("a chat template may not repeat a value this often")
        return super().call_binop(context, operator, left, right)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment
