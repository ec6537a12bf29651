"""Head of a request for a plugin's endpoint, whether a body or a web socket follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from starlette.requests import HTTPConnection

C = TypeVar("C", bound=HTTPConnection)


class RequestHead(Generic[C]):
    """Path, parameters and headers, made when they are asked for: most requests are asked for none of them."""

    def __init__(self, connection: C) -> None:
        self._request = connection

    @property
    def path(self) -> str:
        """Path without the query."""
        return self._request.url.path

    @property
    def path_params(self) -> Mapping[str, str]:
        """Values of the path's parameters."""
        return {name: str(value) for name, value in self._request.path_params.items()}

    @property
    def query(self) -> Mapping[str, str]:
        """Query parameters."""
        return dict(self._request.query_params)

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, by names in lower case."""
        return dict(self._request.headers)
