"""API keys. Every route needs the key unless it is listed here; what is not recognised is refused."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from core.server.errors import ApiError

PUBLIC_PATHS = frozenset({"/health", "/ready"})
"""Exact paths that probes may ask without a key."""


class KeyCheck:
    """Compares keys by digest and in constant time, so that neither content nor length leaks.

    Args:
        api_key: The key, or None when the server is open.
    """

    def __init__(self, api_key: str | None) -> None:
        self._digest = _digest(api_key.encode()) if api_key else None

    def check(self, path: str, headers: Iterable[tuple[bytes, bytes]]) -> ApiError | None:
        """Return the refusal of a request, or None when it may pass."""
        if self._digest is None or path in PUBLIC_PATHS:
            return None
        key = _presented(headers)
        if key is None:
            return _refusal("A key is needed: send Authorization: Bearer <key>, or x-api-key.", "missing_api_key")
        if not hmac.compare_digest(_digest(key), self._digest):
            return _refusal("The API key is wrong.", "invalid_api_key")
        return None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _presented(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                return key.strip()
        elif name == b"x-api-key" and value:
            return value
    return None


def _refusal(message: str, code: str) -> ApiError:
    return ApiError(401, message, code=code, headers={"www-authenticate": "Bearer"})
