"""Objects that the routes of responses share."""

from __future__ import annotations

from dataclasses import dataclass

from core_plugin_tool_servers.servers import RemoteServers

from core.api import EngineClient
from core_plugin_openai.responses.store import ResponseStore


@dataclass(frozen=True, slots=True)
class Shared:
    """The engine, the responses that are kept, and the tool servers that may be spoken to."""

    client: EngineClient
    store: ResponseStore
    servers: RemoteServers | None = None
