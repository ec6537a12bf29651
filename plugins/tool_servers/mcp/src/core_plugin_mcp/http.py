"""HTTP as a tool server gets it: bounded answers, and nothing of the environment's proxies and passwords."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import httpx2

from core_plugin_mcp.options import McpOptions


class TooLargeError(httpx2.TransportError):
    """An answer is longer than allowed."""


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream, self._left = stream, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise TooLargeError("the answer is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class BoundedTransport(httpx2.AsyncBaseTransport):
    """Ends answers that are longer than `limit` bytes, as they come over the network.

    Args:
        inner: Does the work.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, limit: int) -> None:
        self._inner, self._limit = inner, limit

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        # Compressed, a small answer could become a huge one behind this bound.
        request.headers["accept-encoding"] = "identity"
        response = await self._inner.handle_async_request(request)
        if not isinstance(response.stream, httpx2.AsyncByteStream):
            raise TypeError("the transport gave no asynchronous stream")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise TooLargeError("the answer is compressed, though nobody asked for that")
        response.stream = _BoundedStream(response.stream, self._limit)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


def http_client(options: McpOptions, headers: Mapping[str, str]) -> httpx2.AsyncClient:
    """Return a client for one server; how long a call may take is core's business."""
    timeout = httpx2.Timeout(None, connect=options.connect_seconds, pool=options.connect_seconds)
    # The environment's proxies and netrc are the operator's, not meant for whoever names a server.
    inner = httpx2.AsyncHTTPTransport(trust_env=False, proxy=options.proxy)
    transport = BoundedTransport(inner, options.max_answer_bytes)
    return httpx2.AsyncClient(headers=dict(headers), timeout=timeout, trust_env=False, transport=transport)
