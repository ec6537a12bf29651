"""Sends the requests of a batch, a bounded number at a time, and tries again what may succeed later."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any, Protocol

import httpx
import orjson

from core.api import CoreError
from core_plugin_run_batch.requests import Request

_PASSING = frozenset({408, 429, 502, 503, 504})
_CONNECT_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 20.0
_HOPELESS = 8
"""Requests in a row, at least, to which the server gives no answer after all tries: it will give none to the others."""

_QUOTED = 500


class Results(Protocol):
    """Takes what came of the requests."""

    def answer(self, record: dict[str, Any]) -> None: ...

    def fail(self, record: dict[str, Any]) -> None: ...


class Progress(Protocol):
    """Is told of every request that is done."""

    def step(self, *, failed: bool, tokens: int) -> None: ...


class Sender:
    """Sends to one server.

    Args:
        root: Its address, without a path.
        key: Its key, if it wants one.
        socket: Unix socket to connect to instead of the address.
        concurrency: Requests at a time.
        retries: Tries after a failure that may pass, such as a full queue.
        timeout: Seconds for an answer; None waits.
        verify: How the certificate of an https server is checked.
    """

    def __init__(
        self,
        root: str,
        key: str | None,
        socket: str | None,
        *,
        concurrency: int,
        retries: int,
        timeout: float | None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        self._root = root
        self._socket = socket
        self._headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        self._concurrency = concurrency
        self._retries = retries
        self._timeout = timeout
        self._verify = verify
        self._refused = 0

    async def send_all(self, requests: Sequence[Request], results: Results, progress: Progress) -> None:
        """Send all requests.

        Raises:
            CoreError: CORE-S190, nothing answers any more; CORE-S191, the key is wrong, or the server refuses one
                request after the other. Requests without an answer are left out of the results.
        """
        async with self._client() as http:
            queue = iter(requests)

            async def work() -> None:
                # Workers share one iterator: each takes the next request when it is done with its last.
                for request in queue:
                    record = await self._record(http, request)
                    failed = record["error"] is not None or record["response"]["status_code"] != httpx.codes.OK
                    (results.fail if failed else results.answer)(record)
                    progress.step(failed=failed, tokens=_tokens(record))

            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(self._concurrency, len(requests))):
                        workers.create_task(work())
            except ExceptionGroup as group:
                raise group.exceptions[0] from None  # the others met the same server

    def _client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=self._concurrency, max_keepalive_connections=self._concurrency)
        transport = httpx.AsyncHTTPTransport(uds=self._socket, limits=limits) if self._socket else None
        timeout = httpx.Timeout(self._timeout, connect=_CONNECT_SECONDS)
        return httpx.AsyncClient(
            headers=self._headers, limits=limits, timeout=timeout, transport=transport, verify=self._verify
        )

    async def _record(self, http: httpx.AsyncClient, request: Request) -> dict[str, Any]:
        try:
            response = await self._post(http, request)
        except httpx.ReadTimeout:
            return _failure(request, "timeout", f"no answer within {self._timeout:g} s")
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            text = f"{self._root} refuses the key ({response.status_code})."
            raise CoreError("CORE-S191", text, hint="Give --api-key.")
        self._refused = self._refused + 1 if response.status_code in _PASSING else 0
        if self._refused >= max(_HOPELESS, self._concurrency):
            text = f"{self._root} has answered {response.status_code} to {self._refused} requests in a row."
            raise CoreError("CORE-S191", text, hint="What was answered is kept; run the command again to go on.")
        return _answered(request, response)

    async def _post(self, http: httpx.AsyncClient, request: Request) -> httpx.Response:
        """Send a request until it has an answer that will not get better. Raises `CoreError`, CORE-S190."""
        pause = _FIRST_PAUSE
        for _ in range(self._retries):
            try:
                response = await http.post(self._root + request.url, content=request.body)
            except httpx.ReadTimeout:
                raise
            except httpx.HTTPError:
                wanted = 0.0
            else:
                if response.status_code not in _PASSING:
                    return response
                wanted = _retry_after(response)
            await asyncio.sleep(min(max(pause, wanted), _LONGEST_PAUSE))
            pause *= 2
        try:
            return await http.post(self._root + request.url, content=request.body)
        except httpx.ReadTimeout:
            raise
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: httpx.HTTPError) -> CoreError:
        reason = str(error) or type(error).__name__
        return CoreError(
            "CORE-S190",
            f"no answer from {self._root}: {reason}. What was answered is kept.",
            hint="Start the server again, and run the command again to go on.",
        )


def _answered(request: Request, response: httpx.Response) -> dict[str, Any]:
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        quoted = response.text[:_QUOTED]
        return _failure(
            request, "not_json", f"the server answered {response.status_code} with what is not JSON: {quoted}"
        )
    answer = {
        "status_code": response.status_code,
        "request_id": response.headers.get("x-request-id", ""),
        "body": body,
    }
    return {"id": request.key, "custom_id": request.custom_id, "response": answer, "error": None}


def _tokens(record: dict[str, Any]) -> int:
    """Return how many tokens an answer says were generated."""
    body = (record["response"] or {}).get("body")
    usage = body.get("usage") if isinstance(body, dict) else None
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return tokens if isinstance(tokens, int) else 0


def _failure(request: Request, code: str, message: str) -> dict[str, Any]:
    error = {"code": code, "message": message}
    return {"id": request.key, "custom_id": request.custom_id, "response": None, "error": error}


def _retry_after(response: httpx.Response) -> float:
    """Return the seconds that the server asks for; a date or nonsense counts as nothing."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdigit() else 0.0
