"""Choosing the client of tool servers: it takes part where the configuration allows a server, or names it."""

from __future__ import annotations

from collections.abc import Sequence

from core.plugins.drivers import Candidate
from core.plugins.kinds import TOOL_SERVER
from core.selection.select import NONE, Selector


def choose_tool_client(selector: Selector, ask: str | None, servers: Sequence[str]) -> list[Candidate]:
    """Return the client, or nothing where there is no server to speak to and nobody asked for one.

    Args:
        ask: A name; `none`; `auto` for the best installed, which is also what None means where there are servers.
        servers: What the configuration allows: servers of the operator, and patterns of addresses.

    Raises:
        PluginError: The one that was named cannot be had, or servers are allowed and there is no client.
    """
    if ask == NONE or not (ask or servers):
        return []
    return [selector.choose(TOOL_SERVER, ask)]
