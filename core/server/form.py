"""Bodies that are forms: fields and files of `multipart/form-data`, bounded while they are read."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from typing import IO

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from core.api.uploads import RouteForm, UploadedFile
from core.server.body import BODY_SECONDS, bounded, check_announced, in_time
from core.server.errors import ApiError

MEDIA_TYPE = "multipart/form-data"
MAX_TEXT_BYTES = 2**20
"""Of one field that is no file: it is held in memory."""

SLOWEST = 2**18
"""Bytes a second at which a form of the largest size must at least arrive, beside the time for any body."""

_FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\[\]-]{0,63}")


class Upload:
    """`UploadedFile` over a temporary file."""

    def __init__(self, file: UploadFile) -> None:
        self._file = file
        self.name = file.filename or ""
        self.media_type = file.content_type
        self.size = file.size or 0

    async def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        return await self._file.read(size)

    async def seek(self, offset: int) -> None:
        """Go on reading at this byte."""
        await self._file.seek(offset)


class BoundedParser(MultiPartParser):
    """The parser, with bounds on every part and on how many there are.

    Args:
        part_limit: Most bytes of a file; a text has `MAX_TEXT_BYTES` at most.
        max_parts: Fields and files together.
    """

    def __init__(self, request: Request, stream: AsyncGenerator[bytes, None], part_limit: int, max_parts: int) -> None:
        super().__init__(request.headers, stream, max_files=max_parts, max_fields=max_parts)
        self._part_limit, self._max_parts = part_limit, max_parts
        self._parts = self._size = 0
        self._ended = False

    def on_part_begin(self) -> None:
        """Count the part."""
        super().on_part_begin()
        self._parts, self._size = self._parts + 1, 0
        if self._parts > self._max_parts:
            message = f"The form has more than {self._max_parts} parts."
            raise ApiError(413, message, code="too_many_parts", headers={"connection": "close"})

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        """Count its bytes."""
        part, self._size = self._current_part, self._size + end - start
        most = self._part_limit if part.file is not None else min(self._part_limit, MAX_TEXT_BYTES)
        if self._size > most:
            name = part.field_name if _FIELD_NAME.fullmatch(part.field_name) else None
            message = f"{name or 'A part of the form'} is larger than {most} bytes."
            raise ApiError(413, message, param=name, code="part_too_large", headers={"connection": "close"})
        super().on_part_data(data, start, end)

    def on_end(self) -> None:
        """Know that nothing is missing."""
        self._ended = True

    async def read(self, keep: Callable[[IO[bytes]], None]) -> RouteForm:
        """Return the form. Raises `ApiError` 4xx.

        Args:
            keep: Is given what has to be closed once nobody reads it any more.
        """
        try:
            form = await self.parse()
        except MultiPartException as error:
            raise _no_form(error.message) from None
        for file in self._files_to_close_on_error:
            keep(file)
        if not self._ended:
            raise _no_form("It ends before its last boundary.")
        texts: dict[str, list[str]] = {}
        files: dict[str, list[UploadedFile]] = {}
        for name, value in form.multi_items():
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)
            else:
                files.setdefault(name, []).append(Upload(value))
        return RouteForm(texts, files)


async def read_form(
    request: Request, limit: int, part_limit: int, max_parts: int, keep: Callable[[IO[bytes]], None]
) -> RouteForm:
    """Read a body that is a form.

    Args:
        limit: Most bytes of the whole body, whether its length is announced or not.
        part_limit, max_parts: As of `BoundedParser`.
        keep: As of `BoundedParser.read`.

    Raises:
        ApiError: 408, 413, 415; 400, it is no form.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        message = f"The body must be a form: send Content-Type: {MEDIA_TYPE} with its boundary."
        raise ApiError(415, message, code="unsupported_media_type")
    check_announced(request, limit)
    async with in_time(BODY_SECONDS + limit / SLOWEST):
        return await BoundedParser(request, bounded(request, limit), part_limit, max_parts).read(keep)


def _no_form(why: str) -> ApiError:
    return ApiError(400, f"The body is not a valid form: {why}", code="invalid_form")
