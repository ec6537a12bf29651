"""Which chat templates a model is served with: its own, the one asked for, or one that its plugin knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from core.api.descriptors import ModelSpec
from core.api.errors import ConfigError
from core.api.tokenizer import Tokenizer, extras_of
from core.config.resolved import EngineConfig
from core.frontend.templating import Template
from core.plugins.active import enter

if TYPE_CHECKING:
    from core.api.models import ChatTemplates

logger = logging.getLogger(__name__)

DEFAULT, TOOLS = "default", "tool_use"
_MODELS = "core.models"


class TemplateSet:
    """The compiled templates of one model, by name.

    `tool_use`, where a checkpoint has it, is for conversations with tools; `default` for all others.

    Attributes:
        names: Names that a request may choose by.
        variables: Names that the templates read which are chosen without being asked for.
    """

    def __init__(self, sources: Mapping[str, str], make: Callable[[str], Template]) -> None:
        self._templates = {name: make(source) for name, source in sources.items()}
        self.names = frozenset(self._templates)
        chosen = (self.choose(tools=tools) for tools in (False, True))
        self.variables = frozenset[str]().union(*(one.variables for one in chosen if one is not None))

    def named(self, name: str) -> Template | None:
        """Return the template of that name, if there is one."""
        return self._templates.get(name)

    def choose(self, *, tools: bool) -> Template | None:
        """Return the template for a conversation with or without tools; None if there is none."""
        return (self._templates.get(TOOLS) if tools else None) or self._templates.get(DEFAULT)


def template_sources(config: EngineConfig, tokenizer: Tokenizer, marks: Collection[str]) -> dict[str, str]:
    """Return the sources of a model's chat templates by name; empty if nobody knows one.

    Args:
        marks: Texts by which a source is told from a file and a name.

    Raises:
        ConfigError: CORE-C121, `chat_template` is neither a file that can be read, nor a name, nor a template itself.
    """
    own: dict[str, str] = dict(extras_of(tokenizer).chat_templates)
    if tokenizer.chat_template is not None:
        own[DEFAULT] = tokenizer.chat_template
    asked = config.options.model.chat_template
    if asked is not None:
        return {DEFAULT: _asked(asked, own, config, marks)}
    return own or _suited(config, tokenizer)


def known_names(config: EngineConfig) -> list[str]:
    """Return what the model's plugin can be asked for by name."""
    family = _family(config)
    return [] if family is None else sorted(family.names)


def _asked(asked: str, own: Mapping[str, str], config: EngineConfig, marks: Collection[str]) -> str:
    if any(mark in asked for mark in marks):
        return asked
    try:
        if Path(asked).is_file():
            return Path(asked).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: it is not UTF-8, or no path at all
        raise ConfigError(
            "CORE-C121", f"chat template {asked} cannot be read: {error}.", hint="Check --chat-template."
        ) from error
    if asked in own:
        return own[asked]
    family = _family(config)
    names = [] if family is None else sorted(family.names)
    if family is not None and asked in names:
        return family.source(asked)
    known = ", ".join([*sorted(own), *names]) or "none"
    raise ConfigError(
        "CORE-C121",
        f"chat template '{asked:.200}' cannot be read: there is no such file, and no template of this name.",
        hint=f"Check --chat-template; it takes a file, a template itself, or a name. Names known here: {known}.",
    )


def _suited(config: EngineConfig, tokenizer: Tokenizer) -> dict[str, str]:
    """Return what the model's plugin takes for a checkpoint without templates, if it can tell."""
    family = None if not config.decodes else _family(config)
    tokens = frozenset(extras_of(tokenizer).added_texts)
    name = None if family is None else family.suited(config.checkpoint.config, tokens)
    if family is None or name is None:
        return {}
    logger.warning(
        "the checkpoint has no chat template; conversations are written as '%s', which its vocabulary or type suggests"
        " (--chat-template gives it another)",
        name,
    )
    return {DEFAULT: family.source(name)}


def _family(config: EngineConfig) -> ChatTemplates | None:
    planned = config.plan.one(_MODELS)
    if planned is None:
        return None
    active = enter(config.plan.model_copy(update={"drivers": (planned,), "hooks": ()}))
    path = cast(ModelSpec, active.spec(_MODELS)).chat_templates
    return None if path is None else cast("ChatTemplates", active.load(planned, path))
