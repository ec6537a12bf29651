"""The connections of one answer: opened when first needed, bounded in time and size, ended with the answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from core.api import (
    TOOL_BAD_ARGUMENTS,
    Contract,
    PluginError,
    RemoteTool,
    ToolEndpoint,
    ToolResult,
    ToolServerError,
    ToolSession,
)

if TYPE_CHECKING:
    from core_plugin_tool_servers.servers import RemoteServers

logger = logging.getLogger(__name__)

T = TypeVar("T")

TOOL_SESSION = Contract("core.api.tool_servers:ToolSession")

MAX_TOOLS = 512
MAX_LIST_BYTES = 2**20
AT_ONCE = 16
"""Calls of one answer that may run at the same time."""
TIMED_OUT = -32001
_MAX_NAME = 256
_CLOSE_SECONDS = 5.0


def unseen(what: str, value: T, contract: Contract) -> T:
    """Return the value as it is: of a client that nobody chose, there is no owner to name."""
    return value


class RemoteSessions:
    """Speaks to the servers that one request names. Its methods raise nothing but `ToolServerError`.

    Args:
        endpoints: By label.
    """

    def __init__(self, servers: RemoteServers, endpoints: Mapping[str, ToolEndpoint]) -> None:
        self._servers, self._endpoints = servers, endpoints
        self._open: dict[str, ToolSession] = {}
        self._locks = {label: asyncio.Lock() for label in endpoints}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def tools(self, label: str) -> list[RemoteTool]:
        """Return a server's tools. Raises `ToolServerError`."""

        async def ask() -> Sequence[RemoteTool]:
            return await (await self._session(label)).list_tools()

        return _checked(await self._bounded(label, ask()))

    async def call(self, label: str, name: str, arguments: str) -> ToolResult:
        """Run a tool with arguments as the model wrote them. Raises `ToolServerError`."""
        try:
            values = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError:
            values = None
        if not isinstance(values, dict):
            raise ToolServerError("The arguments are no JSON object.", code=TOOL_BAD_ARGUMENTS)

        async def ask() -> ToolResult:
            return await (await self._session(label)).call_tool(name, values)

        async with self._room:  # waiting for others is not the tool's time
            result = await self._bounded(label, ask())
        return ToolResult(self._cut(clean(result.text)), result.failed)

    async def close(self) -> None:
        """End every connection; what fails then is no harm to anybody."""
        sessions = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(_close(session) for session in sessions))

    async def _session(self, label: str) -> ToolSession:
        async with self._locks[label]:
            if label not in self._open:
                endpoint = self._endpoints[label]
                opened = await self._servers.client.open(endpoint.url, endpoint.headers)
                self._open[label] = self._servers.fit("open()", opened, TOOL_SESSION)
            return self._open[label]

    async def _bounded(self, label: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._servers.timeout):
                return await work
        except TimeoutError:
            message = f"No answer within {self._servers.timeout:g} s."
            raise ToolServerError(message, code=TIMED_OUT) from None
        except ToolServerError as error:
            raise ToolServerError(clean(error.message)[:1000], kind=error.kind, code=error.code) from None
        except PluginError as error:
            logger.error("tool server '%s': %s", label, error)
            raise ToolServerError("The connection to the server failed.") from None
        except Exception as error:  # a client that breaks its promise; what it says may hold an address or a header
            logger.warning("tool server '%s': %s", label, type(error).__name__)
            raise ToolServerError("The connection to the server failed.") from None

    def _cut(self, text: str) -> str:
        most = self._servers.result_chars
        return text if len(text) <= most else f"{text[:most]}\n[cut off after {most} of {len(text)} characters]"


def clean(text: str) -> str:
    """Return a text without what JSON cannot carry."""
    return text.encode("utf-8", "replace").decode()


def _checked(tools: Sequence[RemoteTool]) -> list[RemoteTool]:
    """Return tools that can be shown and named. Raises `ToolServerError`."""
    if len(tools) > MAX_TOOLS:
        raise ToolServerError(f"The server lists {len(tools)} tools; at most {MAX_TOOLS} are read.")
    found: dict[str, RemoteTool] = {}
    for tool in tools:
        if not 0 < len(tool.name) <= _MAX_NAME or clean(tool.name) != tool.name:
            raise ToolServerError("The server lists a tool whose name cannot be used.")
        if not isinstance(tool.input_schema, Mapping) or not isinstance(tool.annotations, Mapping | None):
            raise ToolServerError("The server lists a tool whose schema or annotations are no object.")
        text = None if tool.description is None else clean(tool.description)
        found.setdefault(tool.name, RemoteTool(tool.name, text, tool.input_schema, tool.annotations))
    try:
        size = len(orjson.dumps([(one.description, one.input_schema, one.annotations) for one in found.values()]))
    except (orjson.JSONEncodeError, RecursionError):
        raise ToolServerError("The server lists tools whose schemas cannot be read.") from None
    if size > MAX_LIST_BYTES:
        raise ToolServerError(f"The server's list of tools has {size} bytes; at most {MAX_LIST_BYTES} are read.")
    return list(found.values())


async def _close(session: ToolSession) -> None:
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await session.close()
    except Exception as error:
        logger.debug("a tool session did not close: %s", type(error).__name__)
