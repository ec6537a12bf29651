"""Chat templates as the front end uses them: a plugin's engine, what it compiles, and the time that it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, cast

from core.api.descriptors import TemplateEngineSpec
from core.api.errors import CheckpointError, CoreError, PluginError, RequestError
from core.api.templates import RENDER_SECONDS, ChatTemplate, TemplateContext, TemplateEngine
from core.frontend.conversation import Conversation
from core.plugins.active import ActivePlugins
from core.plugins.drivers import describe
from core.plugins.handed import CHAT_TEMPLATE, Handed
from core.plugins.known import Table
from core.selection.select import NONE

GROUP = "core.chat_templates"

_seconds: ContextVar[float] = ContextVar("core_render_seconds", default=RENDER_SECONDS)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Give renderings inside less processor time than they usually have."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


class Template:
    """A compiled template of a plugin's engine.

    Attributes:
        variables: Names that it reads.
    """

    def __init__(self, owner: str, template: ChatTemplate) -> None:
        self._owner, self._template = owner, template
        self.variables = frozenset(template.variables)

    def pieces(self, chat: Conversation, defaults: Mapping[str, Any]) -> list[str]:
        """Return a conversation's prompt text as `ChatTemplate.pieces` does.

        Args:
            defaults: Variables of the template that the conversation may replace.

        Raises:
            RequestError: The template refuses the conversation.
            PluginError: CORE-P108, the engine raised anything else.
        """
        try:
            return self._template.pieces(chat.template_input(defaults, _seconds.get()))
        except (CoreError, RequestError, MemoryError):
            raise
        except ValueError as error:
            raise RequestError(str(error), param="messages") from error
        except Exception as error:
            raise PluginError("CORE-P108", f"{self._owner}: pieces() raised {describe(error)}.") from error


class Templating:
    """The template engine of a plan, which is imported with the first template.

    Attributes:
        marks: Texts of which every source has one; see `TemplateEngineSpec`.
    """

    def __init__(self, active: ActivePlugins) -> None:
        self._active, self._planned = active, active.planned(GROUP)
        self.marks = cast(TemplateEngineSpec, active.spec(GROUP)).marks
        self._owner = f"template engine {self._planned.owner}"
        self._handed = Handed(self._owner)

    @cached_property
    def _engine(self) -> TemplateEngine:
        return cast(TemplateEngine, self._active.new(self._planned))

    def compile(self, source: str, context: TemplateContext) -> Template:
        """Return a template.

        Raises:
            CheckpointError: CORE-M112, the source is not a template.
            PluginError: The engine cannot be made, failed, or gave something else.
        """
        try:
            made = self._engine.compile(source, context)
        except (CoreError, MemoryError):
            raise
        except ValueError as error:
            raise CheckpointError(
                "CORE-M112",
                f"the chat template cannot be compiled: {error}.",
                hint="Give a working one with --chat-template FILE.",
            ) from error
        except Exception as error:
            raise PluginError("CORE-P108", f"{self._owner}: compile() raised {describe(error)}.") from error
        return Template(self._owner, self._handed.fit("compile()", made, CHAT_TEMPLATE))


def no_engine(asked: str | None) -> str:
    """Return what to do about it that no template engine takes part.

    Args:
        asked: What the user said of it.
    """
    if asked == NONE:
        return "--chat-template-engine none leaves templates out"
    dists = [row.dist for row in Table.read().providing(GROUP)]
    return f"no template engine is installed: `pip install {' or '.join(dists) or 'one'}`"
