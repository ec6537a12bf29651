"""Request bodies: bounded while they are read, strict JSON, typed fields; those that ask for too much are refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from core.server.errors import ApiError, ClientGoneError
from core.server.json_size import MAX_CONTAINERS, MAX_ENTRIES, MAX_MEMBERS, fits

MAX_DEPTH = 64
MAX_FIELDS = 1024
BODY_SECONDS = 120.0
INLINE_BYTES = 2**16
"""Bodies up to here are parsed on the spot, which takes less than a millisecond; longer ones beside the event loop."""

_MAX_LISTED = 32
_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_OF_BROWSERS = ("origin", "sec-fetch-site")


async def read_bytes(request: Request, limit: int, *, typed: bool = True) -> bytes:
    """Read the body, at most `limit` bytes whether its length is announced or not.

    Args:
        typed: Whoever sends it says that it is JSON; if False, browsers alone have to.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and (typed or any(name in request.headers for name in _OF_BROWSERS)):
        # A browser sends other types across origins without asking first; JSON it does not.
        message = "The body must be JSON: send Content-Type: application/json."
        raise ApiError(415, message, code="unsupported_media_type")
    check_announced(request, limit)
    async with in_time(BODY_SECONDS):
        return b"".join([chunk async for chunk in bounded(request, limit)])


def check_announced(request: Request, limit: int) -> None:
    """Refuse a body that is announced to be larger than `limit` bytes. Raises `ApiError` 413."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit:
        raise _too_large(limit)


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Give the body so long to arrive. Raises `ApiError` 408; `ClientGoneError`: its client has left."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except ClientDisconnect:
        raise ClientGoneError from None
    except TimeoutError:
        message = f"The body did not arrive within {seconds:g} s."
        raise ApiError(408, message, code="body_too_slow", headers={"connection": "close"}) from None


async def bounded(request: Request, limit: int) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes. Raises `ApiError` 413 behind `limit` bytes."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        yield chunk


async def read_object(request: Request, limit: int, *, typed: bool = True) -> dict[str, Any]:
    """Read a body that is a JSON object; a long one is parsed beside the event loop.

    Args:
        limit, typed: As of `read_bytes`.

    Raises:
        ApiError: 4xx, as `read_bytes` and `parse_object`.
    """
    raw = await read_bytes(request, limit, typed=typed)
    return parse_object(raw) if len(raw) <= INLINE_BYTES else await asyncio.to_thread(parse_object, raw)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object that is no larger than the bounds of `json_size`.

    Raises:
        ApiError: 400; NaN, Infinity, lone surrogates, deep nesting and many fields are refused as well.
    """
    if not fits(raw):
        most = f"{MAX_ENTRIES} values, {MAX_CONTAINERS} arrays and objects, {MAX_MEMBERS} members of objects"
        raise ApiError(400, f"The body holds too much: at most {most}.", code="too_many_entries")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    if len(value) > MAX_FIELDS:
        raise ApiError(400, f"The body has {len(value)} fields; at most {MAX_FIELDS}.", code="too_many_entries")
    return value


def ignored_fields(fields: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Return the header that names the fields which had no effect, or nothing."""
    unknown = sorted(name for name in fields if name not in known and _FIELD_NAME.fullmatch(name))
    return {"x-core-ignored-fields": ",".join(unknown[:_MAX_LISTED])} if unknown else {}


def _too_large(limit: int) -> ApiError:
    # The rest of the body is not read, so the connection cannot be used again.
    message = f"The body is larger than {limit} bytes."
    return ApiError(413, message, code="body_too_large", headers={"connection": "close"})


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return
    raise ApiError(400, f"The body is nested deeper than {MAX_DEPTH} levels.", code="too_deep")
