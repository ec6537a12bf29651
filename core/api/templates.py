"""Chat templates: what the front end asks of an engine that makes prompts of conversations. Provisional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol

import msgspec

from core.api.errors import RequestError

ContentFormat = Literal["string", "openai"]
"""Content of a message as a template sees it: a text, or a list of `{"type": "text", "text": ...}`."""

RENDER_SECONDS = 5.0
"""Processor time that one rendering may take, where nobody sets less."""

MAX_PROMPT_CHARS = 16 * 2**20
"""Characters of the longest prompt that a template may make."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class RenderTimeoutError(RequestError):
    """A template took longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateContext:
    """Tokenizer facts that a template is compiled for.

    Attributes:
        tokens: The tokenizer's named special tokens (`bos_token`, ...), which the template may write.
        special_texts: Every special token of the tokenizer, as text: what a request says must become none of them.
        content_format: What the user asks for; None leaves it to the engine, which looks at the source.
        max_chars: Characters of the longest prompt.
    """

    tokens: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    special_texts: frozenset[str] = frozenset()
    content_format: ContentFormat | None = None
    max_chars: int = MAX_PROMPT_CHARS


class TemplateInput(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to be written. Nothing of it may be changed.

    Attributes:
        messages: OpenAI's, with roles, after the checks of core: contents are texts (empty where there was none) or
            lists of text parts, the arguments of calls objects, and thinking stands under both of its names. Other
            fields are as the client sent them.
        tools: OpenAI's tools; None if the model may call none.
        documents: For templates that show documents.
        variables: Further variables, by the names that the template knows them by (`enable_thinking`, ...).
        add_generation_prompt: End with the start of the assistant's turn.
        continue_final_message: End inside the last message, so that the model goes on with it.
        seconds: Processor time that the rendering may take.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = msgspec.field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    seconds: float = RENDER_SECONDS


class ChatTemplate(Protocol):
    """A compiled template. It serves all requests, also at once and from several threads."""

    @property
    def content_format(self) -> ContentFormat:
        """Form of message contents that the template expects."""
        ...

    @property
    def variables(self) -> frozenset[str]:
        """Names that the template reads, `tools` and `documents` among them: what a request sets else is of no use."""
        ...

    def pieces(self, chat: TemplateInput) -> list[str]:
        """Return the prompt's text, cut where a special token that the request spells must not be read as one.

        The pieces are tokenised one by one. A text of the request (a content, a name, an argument, a variable) that
        holds a special token, or completes one, is therefore cut inside it; what the template itself writes is not.

        Raises:
            RequestError: The messages are malformed, or the template refuses them; `param` is `messages`.
            RenderTimeoutError: It takes longer than `chat.seconds`. The same may be rendered again, with more.
        """
        ...


class TemplateEngine(Protocol):
    """Runtime of a `TemplateEngineSpec`, in the front end. Torch-free to import, and imported with the first template.

    It is made with its options if its descriptor names any, with nothing otherwise. Sources may be hostile: those of
    checkpoints are strangers', and requests may bring their own where the operator trusts them.
    """

    def compile(self, source: str, context: TemplateContext) -> ChatTemplate:
        """Return the template that `source` spells. Raises `ValueError`, whose text says why it is none."""
        ...
