"""The routes of the Responses API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from core.server.openai.responses.create import CreateRoutes
from core.server.openai.responses.kept import KeptRoutes
from core.server.openai.responses.protocol import ResponsesBody
from core.server.openai.responses.store import ResponseStore
from core.server.state import ServerState

Route = tuple[str, str, Callable[[Request], Awaitable[Response]], type[BaseModel] | None]

PATH = "/v1/responses"


def response_routes(state: ServerState) -> list[Route]:
    """Return method, path, endpoint and body of each route; they share one store."""
    server = state.options.server
    store = ResponseStore(server.response_store, server.response_store_bytes)
    create, kept = CreateRoutes(state, store), KeptRoutes(state, store)
    return [
        ("POST", PATH, create.create, ResponsesBody),
        ("POST", f"{PATH}/input_tokens", create.count, ResponsesBody),
        ("POST", f"{PATH}/render", create.render, ResponsesBody),
        ("GET", f"{PATH}/{{response_id}}", kept.read, None),
        ("DELETE", f"{PATH}/{{response_id}}", kept.delete, None),
        ("POST", f"{PATH}/{{response_id}}/cancel", kept.cancel, None),
        ("GET", f"{PATH}/{{response_id}}/input_items", kept.input_items, None),
    ]
