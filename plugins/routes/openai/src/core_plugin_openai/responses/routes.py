"""The routes of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_tool_servers.servers import RemoteServers, remote_servers

from core.api import EngineClient, Reply, RouteRegistry, RouteRequest, RouteResponse
from core_plugin_openai.responses import create, kept
from core_plugin_openai.responses.protocol import ResponsesBody
from core_plugin_openai.responses.shared import Shared
from core_plugin_openai.responses.store import ResponseStore

PATH = "/v1/responses"
ONE = f"{PATH}/{{response_id}}"


class ResponsesRoutes:
    """The routes, the engine that they ask, and the responses that are kept.

    Attributes:
        shared: All of them, once the engine is ready.
        servers: The tool servers that may be spoken to; None: there are none.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.shared: Shared
        self.servers: RemoteServers | None = None

    def declare(self, registry: RouteRegistry) -> None:
        """Declare the routes. Raises `ConfigError`: a tool server's address or header cannot be used."""
        self.servers = remote_servers(registry)
        registry.add("POST", PATH, self.create, body=ResponsesBody, generates=True)
        registry.add("POST", f"{PATH}/input_tokens", self.count_tokens, body=ResponsesBody, generates=True)
        registry.add("POST", f"{PATH}/render", self.render, body=ResponsesBody, generates=True)
        registry.add("GET", ONE, self.read, generates=True, streams=True)
        registry.add("DELETE", ONE, self.delete, generates=True)
        registry.add("POST", f"{ONE}/cancel", self.cancel, generates=True)
        registry.add("GET", f"{ONE}/input_items", self.input_items, generates=True)

    def bind(self, client: EngineClient) -> None:
        """Requests come from now on."""
        kept, size = client.settings["response_store"], client.settings["response_store_bytes"]
        self.shared = Shared(client, ResponseStore(kept, size), self.servers)

    async def create(self, request: RouteRequest) -> Reply:
        """Make a response."""
        return await create.create(self.shared, request)

    async def count_tokens(self, request: RouteRequest) -> RouteResponse:
        """Return how many tokens a request's input has."""
        return await create.count_tokens(self.shared, request)

    async def render(self, request: RouteRequest) -> RouteResponse:
        """Return what the engine would be sent first; nothing is generated."""
        return await create.render_response(self.shared, request)

    async def read(self, request: RouteRequest) -> RouteResponse | Reply:
        """Return a response as it is, or its events."""
        return await kept.read(self.shared.store, request)

    async def delete(self, request: RouteRequest) -> RouteResponse:
        """Forget a response."""
        return await kept.delete(self.shared.store, request)

    async def cancel(self, request: RouteRequest) -> RouteResponse:
        """End a response that is being made."""
        return await kept.cancel(self.shared.store, request)

    async def input_items(self, request: RouteRequest) -> RouteResponse:
        """Return a page of a response's input items."""
        return await kept.input_items(self.shared.store, request)
