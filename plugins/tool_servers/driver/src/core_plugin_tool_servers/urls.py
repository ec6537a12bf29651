"""Addresses of tool servers, read strictly: what is checked here must be what the client connects to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_PORTS = {"http": 80, "https": 443}
_MAX_LENGTH = 2048
_HOST = r"\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+"
# Parsers of addresses disagree about blanks, backslashes and user names: an address that has any is none.
_ADDRESS = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{_HOST})(?::(?P<port>\d{{1,5}}))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?P<query>\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?",
    re.ASCII,
)
_PATTERN = re.compile(
    rf"(?P<scheme>https?)://(?P<host>(?:\*\.)?(?:{_HOST}))(?::(?P<port>\d{{1,5}}|\*))?"
    r"(?P<path>/[A-Za-z0-9._~!$&'()+,;=:@%/-]*)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Address:
    """An address, taken apart.

    Attributes:
        host: In lower case.
        path: Begins with a slash.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """The address as answers repeat it: without its query, which may hold a key."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """Addresses that requests may bring.

    Attributes:
        host: In lower case; `*.` in front means every host below.
        port: None means any.
        path: This path, and what lies below it.
    """

    scheme: str
    host: str
    port: int | None
    path: str

    def allows(self, address: Address) -> bool:
        """Say whether an address is one of them."""
        if (address.scheme, self.port or address.port) != (self.scheme, address.port):
            return False
        if self.host.startswith("*."):
            hosts = address.host.endswith(self.host[1:])
        else:
            hosts = address.host == self.host
        base = self.path.rstrip("/")
        return hosts and (address.path == base or address.path.startswith(f"{base}/"))


def read_address(text: str) -> Address:
    """Take an address apart. Raises `ValueError` with what is wrong."""
    found = _ADDRESS.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if found is None:
        raise ValueError("must be http:// or https:// with a host, and neither user name nor fragment")
    path = found["path"] or "/"
    plain = unquote(path)
    # Some servers read `..;x` as `..`, and some decode twice.
    if "\\" in plain or "%" in plain or any(part.partition(";")[0] in (".", "..") for part in plain.split("/")):
        raise ValueError("must have a path without '.', '..' and encoded '%'")
    return Address(found["scheme"], found["host"].lower(), _port(found["port"]) or _PORTS[found["scheme"]], path)


def read_pattern(text: str) -> AddressPattern:
    """Read a pattern. Raises `ValueError` with what is wrong."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        raise ValueError("must be https://HOST[:PORT][/PATH]; the host may begin with '*.', the port may be '*'")
    any_port = found["port"] == "*"
    port = None if any_port else _port(found["port"]) or _PORTS[found["scheme"]]
    return AddressPattern(found["scheme"], found["host"].lower(), port, found["path"] or "/")


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not 0 < int(text) < 2**16:
        raise ValueError("must have a port from 1 to 65535")
    return int(text)
