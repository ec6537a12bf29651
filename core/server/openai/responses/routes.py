"""The routes of the Responses API."""

from __future__ import annotations

from core.server.openai.responses import create, kept
from core.server.openai.responses.protocol import ResponsesBody
from core.server.routes import Route

PATH = "/v1/responses"

ROUTES = (
    Route("POST", PATH, create.create, ResponsesBody),
    Route("POST", f"{PATH}/input_tokens", create.count_tokens, ResponsesBody),
    Route("POST", f"{PATH}/render", create.render_response, ResponsesBody),
    Route("GET", f"{PATH}/{{response_id}}", kept.read),
    Route("DELETE", f"{PATH}/{{response_id}}", kept.delete),
    Route("POST", f"{PATH}/{{response_id}}/cancel", kept.cancel),
    Route("GET", f"{PATH}/{{response_id}}/input_items", kept.input_items),
)
