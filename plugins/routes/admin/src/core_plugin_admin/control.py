"""`/pause`, `/resume`, `/is_paused`, `/drain`, `/abort_requests`, `/reset_prefix_cache`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from core.api import RequestError
from core_plugin_admin.bodies import AbortBody, AdminBody, PauseBody
from core_plugin_admin.server import Server

logger = logging.getLogger(__name__)


async def pause(server: Server, asked: PauseBody) -> Mapping[str, Any]:
    """Hold new requests back; answer once the engine rests."""
    if server.operator.draining:
        message = "The server is shutting down: what it held back would wait in vain."
        raise RequestError(message, code="draining", status=503)
    logger.warning("paused (%s) by an admin request", asked.mode)
    await server.operator.pause(asked.mode, clear_cache=asked.clear_cache)
    return {"status": "paused"}


async def resume(server: Server, asked: AdminBody) -> Mapping[str, Any]:
    """Let requests pass again."""
    await server.operator.resume()
    logger.warning("resumed by an admin request")
    return {"status": "resumed"}


async def is_paused(server: Server, asked: None) -> Mapping[str, Any]:
    """Say whether new requests are held back."""
    return {"is_paused": server.operator.paused}


async def drain(server: Server, asked: AdminBody) -> Mapping[str, Any]:
    """Begin the server's end, as the first SIGTERM does; harmless when it has begun."""
    operator = server.operator
    if not operator.draining:
        logger.warning("the server ends by an admin request")
        operator.drain()
    seconds = server.client.settings["drain_timeout"]
    return {"status": "draining", "in_flight": operator.in_flight, "at_most_s": seconds}


async def abort_requests(server: Server, asked: AbortBody) -> Mapping[str, Any]:
    """End requests; their clients get what there is, with finish reason `abort`."""
    if asked.abort_all == bool(asked.request_ids):
        raise RequestError("Give either request_ids or abort_all.", param="request_ids")
    found = await server.operator.abort(None if asked.abort_all else asked.request_ids)
    return {"aborted": list(found), "unknown": [name for name in asked.request_ids if name not in found]}


async def reset_prefix_cache(server: Server, asked: AdminBody) -> Mapping[str, Any]:
    """Forget the KV blocks of finished requests; running ones keep theirs."""
    await server.client.call("reset_prefix_cache")
    return {"success": True}
