"""Chat templates in tests: what the installed template engine makes of a source, and of messages as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from core.api.templates import (
    MAX_PROMPT_CHARS,
    RENDER_SECONDS,
    ChatTemplate,
    ContentFormat,
    TemplateContext,
    TemplateEngine,
    TemplateInput,
)
from core.plugins.catalog import Catalogue
from core.plugins.drivers import instantiate, load_descriptors


class CompiledTemplate:
    """A template with the arguments of a conversation side by side.

    Args:
        source: In the language of the engine.
        tokens: Named special tokens.
        content_format: What contents are; None: as the source looks.
        special_texts: Special tokens of the tokenizer.
        max_chars: Characters of the longest prompt.
        engine: None: the one that is installed.

    Attributes:
        template: What the engine made.

    Raises:
        ValueError: The source is none.
    """

    def __init__(
        self,
        source: str,
        tokens: Mapping[str, Any],
        *,
        content_format: ContentFormat | None = None,
        special_texts: Iterable[str] = (),
        max_chars: int = MAX_PROMPT_CHARS,
        engine: TemplateEngine | None = None,
    ) -> None:
        context = TemplateContext(
            tokens=tokens,
            special_texts=frozenset(special_texts),
            content_format=content_format,
            max_chars=max_chars,
        )
        self.template: ChatTemplate = (engine or installed_engine()).compile(source, context)

    def render(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None, **named: Any
    ) -> str:
        """Return the prompt's text; see `pieces`."""
        return "".join(self.pieces(messages, tools, **named))

    def pieces(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        seconds: float = RENDER_SECONDS,
        **variables: Any,
    ) -> list[str]:
        """Return what the template makes of a `TemplateInput` of these. Raises `RequestError`."""
        return self.template.pieces(
            TemplateInput(
                messages=messages,
                tools=tools,
                documents=documents,
                variables=variables,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                seconds=seconds,
            )
        )


@cache
def installed_engine() -> TemplateEngine:
    """Return the first template engine that is installed, with its defaults. Raises `LookupError`."""
    candidates, _ = load_descriptors(Catalogue.scan().entries("core.chat_templates"))
    if not candidates:
        raise LookupError("no template engine is installed: `pip install core-plugin-jinja`")
    engine: TemplateEngine = instantiate(candidates[0], {})
    return engine
