"""Uploads: a request's body as the fields and files of a form. Provisional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from core.api.errors import RequestError


class UploadedFile(Protocol):
    """One file of a form. Large ones lie on disk; it is closed when the request has been answered, however it ended.

    Attributes:
        name: File name as the client says it, which may be empty, hold anything, and is no path to write to.
        media_type: As the client says it; None where it says nothing.
        size: Bytes.
    """

    @property
    def name(self) -> str: ...

    @property
    def media_type(self) -> str | None: ...

    @property
    def size(self) -> int: ...

    async def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or all that are left; empty at the end."""
        ...

    async def seek(self, offset: int) -> None:
        """Go on reading at this byte."""
        ...


@dataclass(frozen=True, slots=True)
class RouteForm:
    """A body of the type `multipart/form-data`.

    Attributes:
        texts: Values of its fields, by name, in the order in which they came.
        files: Its files, by name of the field.
    """

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Mapping[str, Sequence[UploadedFile]] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """Return a field's value, None if it was not sent. Raises `RequestError` 400: it has several, or is a file."""
        if name in self.files:
            raise RequestError(f"{name} must be a text, not a file", param=name)
        found = self.texts.get(name, ())
        if len(found) > 1:
            raise RequestError(f"{name} was sent {len(found)} times; send it once", param=name)
        return found[0] if found else None

    def file(self, name: str) -> UploadedFile:
        """Return a field's file. Raises `RequestError` 400: there is none, or there are several."""
        found = self.files.get(name, ())
        if len(found) != 1:
            what = "must be a file: send one" if not found else f"was sent {len(found)} times; send one file"
            raise RequestError(f"{name} {what}", param=name)
        return found[0]
