"""Keys. Every route needs one unless it is listed here, admin routes need their own; what is not known is refused."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable

from core.api.requests import key_id
from core.options.server import ServerOptions
from core.server.errors import ApiError

PUBLIC_PATHS = frozenset({"/health", "/livez", "/ping", "/ready", "/readyz"})
"""Exact paths that probes may ask without a key."""

Headers = Iterable[tuple[bytes, bytes]]

_READING = frozenset({"GET", "HEAD"})

_HOST = re.compile(r"(?:\[([^\]]+)\]|([^\[\]:]+))(?::\d+)?")
_LOCAL_NAMES = frozenset({"localhost"})
_FROM_ELSEWHERE = frozenset(
    {b"origin", b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via", b"sec-fetch-site"}
)
"""Headers of browsers and proxies: whoever sent the request is not (only) the local process that hands it over."""


class KeyCheck:
    """Compares keys by digest and in constant time, so that neither content nor length leaks.

    Admin routes take the admin key alone. A server without one refuses them, unless it has no keys at all and listens
    for local clients only; then they serve requests that neither a browser nor a proxy sent.

    Args:
        api_key: The key, or None when the server is open.
        admin_key: Key of the admin routes; it opens the other routes too.
        admin_paths: Exact paths of the admin routes.
        public_paths: Exact paths of further files that everybody may GET.
        key_headers: Further headers, in lower case, in which clients send keys.
        local: Whether only this machine can reach the server.
    """

    def __init__(
        self,
        api_key: str | None,
        admin_key: str | None = None,
        *,
        admin_paths: Collection[str] = (),
        public_paths: Collection[str] = (),
        key_headers: Collection[bytes] = (),
        local: bool = False,
    ) -> None:
        self._key = _digest(api_key.encode()) if api_key else None
        self._admin = _digest(admin_key.encode()) if admin_key else None
        self._ids = {_digest(key.encode()): key_id(key) for key in (api_key, admin_key) if key}
        self._admin_paths = admin_paths
        self._public_paths = public_paths
        self._key_headers = key_headers
        self._local = local

    def check(self, path: str, headers: Headers, method: str = "") -> ApiError | None:
        """Return the refusal of a request, or None when it may pass."""
        if path in PUBLIC_PATHS or (method in _READING and path in self._public_paths):
            return None
        if path in self._admin_paths:
            return self._check_admin(headers)
        return None if self._key is None else self._refuse(headers)

    def key_of(self, headers: Headers) -> str:
        """Return the id of the key that a request brings, if it is one of those there are; else an empty text."""
        key = self._presented(headers) if self._ids else None
        return self._ids.get(_digest(key), "") if key is not None else ""

    def _check_admin(self, headers: Headers) -> ApiError | None:
        if self._admin is not None:
            headers = list(headers)
            refusal = self._refuse(headers)
            if refusal is None and not _equal(self._presented(headers), self._admin):
                refusal = ApiError(403, "Admin routes need the admin key; this is the API key.", code="admin_scope")
            return refusal
        if self._key is not None and (refusal := self._refuse(headers)) is not None:
            return refusal
        if self._key is None and self._local and _direct(headers):
            return None
        message = "Admin routes are closed on this server: start it with --admin-api-key to open them."
        return ApiError(403, message, code="admin_closed")

    def _refuse(self, headers: Headers) -> ApiError | None:
        """Return the refusal of a request that brings none of the keys there are."""
        key = self._presented(headers)
        if key is None:
            return _refusal("A key is needed: send Authorization: Bearer <key>, or x-api-key.", "missing_api_key")
        if not any(_equal(key, known) for known in (self._key, self._admin)):
            return _refusal("The API key is wrong.", "invalid_api_key")
        return None

    def _presented(self, headers: Headers) -> bytes | None:
        """Return the key that a request brings: the first one."""
        for name, value in headers:
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                if scheme.lower() == b"bearer" and key.strip():
                    return key.strip()
            elif value and (name == b"x-api-key" or name in self._key_headers):
                return value
        return None


def is_local(options: ServerOptions) -> bool:
    """Return whether only this machine can reach the address of the options."""
    if options.uds:
        return True
    try:
        return ipaddress.ip_address(options.host).is_loopback
    except ValueError:
        return options.host == "localhost"


def _direct(headers: Headers) -> bool:
    """Return whether a local process sent the request of its own accord, as far as the request shows.

    A page in a browser on this machine can reach a local server, through a name of its own making too.
    """
    for name, value in headers:
        if name in _FROM_ELSEWHERE or (name == b"host" and not _names_this_machine(value.decode("latin-1"))):
            return False
    return True


def _names_this_machine(host: str) -> bool:
    parts = _HOST.fullmatch(host)
    name = (parts[1] or parts[2]) if parts else "?"
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() in _LOCAL_NAMES


def _equal(key: bytes | None, known: bytes | None) -> bool:
    return key is not None and known is not None and hmac.compare_digest(_digest(key), known)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _refusal(message: str, code: str) -> ApiError:
    return ApiError(401, message, code=code, headers={"www-authenticate": "Bearer"})
