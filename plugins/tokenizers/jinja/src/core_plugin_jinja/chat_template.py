"""Chat templates: conversations become prompts, in a sandbox."""

from __future__ import annotations

from typing import Any

import jinja2
from jinja2 import meta

from core.api import RequestError, TemplateContext, TemplateInput
from core.api.templates import ContentFormat
from core_plugin_jinja.functions import FILTERS, FUNCTIONS, RefusalError
from core_plugin_jinja.messages import plain_data, plain_messages
from core_plugin_jinja.meter import metered
from core_plugin_jinja.plain_text import MARK, PlainText, pieces
from core_plugin_jinja.probing import asks_for_none, asks_for_text, content_format
from core_plugin_jinja.sandbox import Sandbox

MAX_SOURCE_CHARS = 2**20
_TAIL_MARK = "\ue000continue-final-message\ue000 "
"""Stands where a continued message ends; the blank shows whether the template trims its content."""


class JinjaTemplate:
    """One compiled template; `core.api.templates.ChatTemplate` otherwise.

    Args:
        source: Jinja source as Hugging Face checkpoints carry it.
        context: Special tokens, limits, and what the user asks for.

    Attributes:
        content_format: `string` or `openai`.
        variables: Names that the template reads.

    Raises:
        ValueError: The source is not a template.
    """

    def __init__(self, source: str, context: TemplateContext) -> None:
        self._special = dict(context.tokens)
        self._max_chars = context.max_chars
        self._plain = PlainText(context.special_texts)
        self._knows_developer = "developer" in source
        asked = context.content_format
        try:
            if len(source) > MAX_SOURCE_CHARS:
                raise jinja2.TemplateError(f"it has more than {MAX_SOURCE_CHARS} characters")
            sandbox = Sandbox(FUNCTIONS, FILTERS)
            tree = sandbox.parse(source)
            self._functions = frozenset(sandbox.globals)
            self.variables = frozenset(meta.find_undeclared_variables(tree)) - self._functions
            self.content_format: ContentFormat = content_format(tree) if asked is None else asked
            self._takes_texts = asked is None and asks_for_text(tree)
            self._shows_calls_for_none = asks_for_none(tree)
            self._template = sandbox.build(tree)
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError) as error:
            raise ValueError(str(error)) from error

    def pieces(self, chat: TemplateInput) -> list[str]:
        """Return the prompt's text, cut where a special token that a request spells must not be read as one.

        Raises:
            RequestError: The messages are malformed, the template refuses them (the message is its own) or takes too
                long.
        """
        for name in chat.variables:
            if name in self._special or name in self._functions:
                said = (
                    f"template_args must not set '{name[:64]}', which belongs to the model or to the template language"
                )
                raise RequestError(said, param="template_args")
        with metered(chat.seconds):
            turns = self._turns(chat.messages)
            if chat.continue_final_message:
                if chat.add_generation_prompt:
                    raise RequestError(
                        "continue_final_message and add_generation_prompt cannot both be true",
                        param="continue_final_message",
                    )
                final = _mark_tail(turns)
            mark = self._plain.mark
            text = self._run(
                {
                    **self._special,
                    **plain_data(chat.variables, mark),
                    "messages": turns,
                    "tools": plain_data(chat.tools, mark),
                    "documents": plain_data(chat.documents, mark),
                    "add_generation_prompt": chat.add_generation_prompt,
                }
            )
        return pieces(_cut_tail(text, final) if chat.continue_final_message else text)

    def _turns(self, messages: Any) -> list[dict[str, Any]]:
        parts = self.content_format == "openai"
        chat = plain_messages(messages, self._plain.mark, parts=parts, texts=self._takes_texts)
        if not self._knows_developer:
            for message in chat:  # today's name of what these templates call system
                message["role"] = "system" if message["role"] == "developer" else message["role"]
        if self._shows_calls_for_none:
            for message in chat:
                if "tool_calls" in message and not message["content"]:
                    message["content"] = None
        return chat

    def _run(self, variables: dict[str, Any]) -> str:
        found, size = [], 0
        try:
            for piece in self._template.generate(variables):
                found.append(piece)
                size += len(piece)
                if size > self._max_chars:
                    raise _too_long(self._max_chars)
        except RequestError:
            raise
        except RefusalError as error:
            raise RequestError(str(error).replace(MARK, ""), param="messages") from error
        except Exception as error:  # templates fail in every way that Python can
            raise RequestError(
                f"the chat template cannot render these messages: {type(error).__name__}: {error}", param="messages"
            ) from error
        return "".join(found)


def _too_long(limit: int) -> RequestError:
    return RequestError(
        f"the chat template makes a prompt of more than {limit} characters of these messages",
        param="messages",
        code="context_length_exceeded",
    )


def _mark_tail(chat: list[dict[str, Any]]) -> str:
    message = chat[-1]
    if "tool_calls" in message and not message["content"]:
        raise RequestError("continue_final_message: the last message has no text to go on from", param="messages")
    if isinstance(message["content"], list):
        message["content"] = message["content"] or [{"type": "text", "text": ""}]
        holder, key = message["content"][-1], "text"
    else:
        holder, key = message, "content"
    content: str = holder[key]
    holder[key] = content + _TAIL_MARK
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
