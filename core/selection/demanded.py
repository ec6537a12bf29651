"""Kinds whose plugins take part because an option of a section needs one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.config.sections import plugin_sections
from core.plugins.drivers import Candidate
from core.plugins.kinds import TOOL_SERVER
from core.selection.select import NONE, Selector

if TYPE_CHECKING:
    from core.config.resolved import Options


def demanded_kinds(options: Options) -> frozenset[str]:
    """Return the groups of which an option that is set needs a plugin (`OptionSection.needs`)."""
    return frozenset(_demanded(options))


def _demanded(options: Options) -> Iterator[str]:
    for name, section in plugin_sections().items():
        values = getattr(options, name)
        for group, needing in section.descriptor.needs.items():
            if any(getattr(values, one) not in (None, False, "", [], {}) for one in needing):
                yield group


def choose_tool_client(selector: Selector, options: Options) -> list[Candidate]:
    """Return the client of tool servers, or nothing where no option needs one and nobody asked for one.

    Raises:
        PluginError: The one that was named cannot be had, or one is needed and there is none.
    """
    ask = options.select.tool_client
    if ask == NONE or not (ask or TOOL_SERVER.group in demanded_kinds(options)):
        return []
    return [selector.choose(TOOL_SERVER, ask)]
