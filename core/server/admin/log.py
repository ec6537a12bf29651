"""`GET /server_log`: the last lines of the log, of the server's process and the engine's, without secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from core import logs
from core.api.errors import CoreError
from core.server.admin.bodies import LogBody, read_admin
from core.server.admin.info import HIDDEN, secrets
from core.server.answers import json_answer
from core.server.state import ServerState


async def server_log(state: ServerState, request: Request) -> Response:
    """Return the newest lines, the oldest first; the engine's only while there is an engine to ask."""
    body = await read_admin(request, LogBody)
    lines = [*logs.recent(body.lines), *await _of_engine(state, body.lines)]
    lines.sort(key=lambda line: float(line["time"]))
    hidden = secrets(state.options)
    shown = [{**line, "message": _without(hidden, line["message"])} for line in lines[-body.lines :]]
    return json_answer({"lines": shown, "kept": logs.RECENT_LINES})


async def _of_engine(state: ServerState, count: int) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = await state.llm.call("recent_log", count) if state.llm.healthy else []
        return found
    except CoreError:
        return []


def _without(hidden: Sequence[str], text: str) -> str:
    """Return a message without these texts, of which the first is the longest."""
    cut = len(text) == logs.RECENT_CHARS
    for secret in hidden:
        text = text.replace(secret, HIDDEN)
    return text[: -len(hidden[0])] if cut and hidden else text  # its end may be a part of one
