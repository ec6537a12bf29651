"""Chat templates: conversations become prompts, in a sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError

from core.api.errors import CheckpointError, RequestError
from core.tokenizer.messages import plain_data, plain_messages
from core.tokenizer.meter import metered
from core.tokenizer.plain_text import MARK, PlainText, pieces
from core.tokenizer.sandbox import Sandbox

ContentFormat = Literal["auto", "string", "openai"]

MAX_PROMPT_CHARS = 16 * 2**20
MAX_SOURCE_CHARS = 2**20
_MAX_INDENT = 16
_MAX_DATE_FORMAT = 100
_TAIL_MARK = "\ue000continue-final-message\ue000 "
"""Stands where a continued message ends; the blank shows whether the template trims its content."""


class ChatTemplate:
    """One compiled template.

    Args:
        source: Jinja source as Hugging Face checkpoints carry it.
        special: Named special tokens, visible to the template.
        max_chars: Longest prompt it may produce.
        content_format: Whether contents are texts (`string`) or lists of parts (`openai`); `auto`: as the source looks.
        special_texts: Special tokens of the tokenizer, which texts of a request must not turn into.

    Attributes:
        content_format: `string` or `openai`.
        variables: Names that the template reads.

    Raises:
        CheckpointError: CORE-M112, the source is not a template.
    """

    def __init__(
        self,
        source: str,
        special: Mapping[str, Any],
        *,
        max_chars: int = MAX_PROMPT_CHARS,
        content_format: ContentFormat = "auto",
        special_texts: Iterable[str] = (),
    ) -> None:
        self._special = dict(special)
        self._max_chars = max_chars
        self._plain = PlainText(special_texts)
        self._knows_developer = "developer" in source
        try:
            if len(source) > MAX_SOURCE_CHARS:
                raise jinja2.TemplateError(f"it has more than {MAX_SOURCE_CHARS} characters")
            sandbox = Sandbox(_FUNCTIONS, {"tojson": _tojson})
            tree = sandbox.parse(source)
            self._functions = frozenset(sandbox.globals)
            self.variables = frozenset(meta.find_undeclared_variables(tree)) - self._functions
            self.content_format = _content_format(tree) if content_format == "auto" else content_format
            self._takes_texts = content_format == "auto" and _asks_for_text(tree)
            self._shows_calls_for_none = _asks_for_none(tree)
            self._template = sandbox.build(tree)
        except (jinja2.TemplateError, SyntaxError, RecursionError, MemoryError) as error:
            raise CheckpointError(
                "CORE-M112",
                f"the chat template cannot be compiled: {error}.",
                hint="Give a working one with --chat-template FILE.",
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """Return the prompt's text; see `pieces`."""
        return "".join(self.pieces(messages, tools, **kwargs))

    def pieces(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Return the prompt's text, cut where a special token that a request spells must not be read as one.

        Args:
            messages: OpenAI's messages; content is a text or a list of text parts.
            tools: OpenAI's tools.
            add_generation_prompt: End with the start of the assistant's turn.
            continue_final_message: End inside the last message, so that the model goes on with it.
            kwargs: Further variables that the template reads (`enable_thinking`, ...).

        Raises:
            RequestError: The messages are malformed, the template refuses them (the message is its own) or takes too
                long.
        """
        for name in kwargs:
            if name in self._special or name in self._functions:
                said = (
                    f"template_args must not set '{name[:64]}', which belongs to the model or to the template language"
                )
                raise RequestError(said, param="template_args")
        with metered():
            chat = self._chat(messages)
            if continue_final_message:
                if add_generation_prompt:
                    raise RequestError(
                        "continue_final_message and add_generation_prompt cannot both be true",
                        param="continue_final_message",
                    )
                final = _mark_tail(chat)
            mark = self._plain.mark
            text = self._run(
                {
                    **self._special,
                    **plain_data(kwargs, mark),
                    "messages": chat,
                    "tools": plain_data(tools, mark),
                    "documents": plain_data(documents, mark),
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        return pieces(_cut_tail(text, final) if continue_final_message else text)

    def _chat(self, messages: Any) -> list[dict[str, Any]]:
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
        except _RefusalError as error:
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


def _content_format(tree: nodes.Template) -> Literal["string", "openai"]:
    """Return `openai` for a template that goes through the parts of a content."""
    named = _names_of_content(tree)
    loops = any(_reads_content(loop.iter, named) for loop in tree.find_all(nodes.For))
    return "openai" if loops else "string"


def _asks_for_none(tree: nodes.Template) -> bool:
    """Whether a template has a branch for a content that is none: some write calls there and nowhere else."""
    named = _names_of_content(tree)
    negated = {id(one.node) for one in tree.find_all(nodes.Not)}
    tests = (one for one in tree.find_all(nodes.Test) if one.name == "none" and id(one) not in negated)
    return any(_reads_content(one.node, named) for one in tests)


def _asks_for_text(tree: nodes.Template) -> bool:
    """Whether a template asks if a content is a text; elsewhere it may take for granted that one is."""
    named = _names_of_content(tree)
    return any(one.name == "string" and _reads_content(one.node, named) for one in tree.find_all(nodes.Test))


def _names_of_content(tree: nodes.Template) -> set[str]:
    """Return the variables that hold a content."""
    named = {"content"}
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and _reads_content(assignment.node, named):
            named.add(assignment.target.name)
    return named


def _reads_content(node: nodes.Node, named: set[str]) -> bool:
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name in named


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


class _RefusalError(Exception):
    """What a template says with `raise_exception`."""


def _raise_exception(message: object) -> NoReturn:
    raise _RefusalError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _MAX_DATE_FORMAT or any(char.isdigit() for char in form):
        raise SecurityError("strftime_now takes short formats without widths")
    return datetime.now().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which prompts must not."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise SecurityError(f"tojson indents by at most {_MAX_INDENT} blanks")
    text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    return text.replace(_MARK_ASCII, MARK) if ensure_ascii else text


_FUNCTIONS = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
_MARK_ASCII = json.dumps(MARK).strip('"')
