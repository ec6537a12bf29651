"""Which tool servers may be spoken to: those of the operator, and addresses that requests may bring."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core.api import ConfigError, Fit, RouteRegistry, ToolEndpoint, ToolServerClient
from core_plugin_tool_servers.sessions import RemoteSessions, unseen
from core_plugin_tool_servers.urls import AddressPattern, read_address, read_pattern

GROUP = "core.tool_servers"
LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_VALUE = re.compile(r"[\x20-\x7e]{0,8192}")
_RESERVED = re.compile(r"(?i)host|content-.*|transfer-encoding|connection|upgrade|te|trailer|accept|expect|mcp-.*")
_MAX_HEADERS = 32


@dataclass(frozen=True, slots=True)
class RemoteServers:
    """Tool servers that the configuration allows, and limits of their use.

    Attributes:
        own: The operator's servers, by label.
        patterns: Addresses that requests may bring.
        timeout: Seconds that a list or a call may take.
        result_chars: Longest result of a tool.
        rounds: How often a model may call in one answer.
        fit: Holds the sessions that the client hands out against their contract.
    """

    client: ToolServerClient
    own: Mapping[str, ToolEndpoint]
    patterns: tuple[AddressPattern, ...] = ()
    timeout: float = 60.0
    result_chars: int = 32768
    rounds: int = 16
    fit: Fit = unseen

    def endpoint(self, label: str, url: str | None, headers: Mapping[str, str]) -> ToolEndpoint:
        """Return where a request's server is. Raises `ValueError` with the reason if it must not be spoken to."""
        mine = self.own.get(label)
        if url is None:
            if mine is None:
                raise ValueError(f"there is no server '{label}' here, and server_url is missing")
            named = {name.lower() for name in mine.headers}
            more = {name: value for name, value in headers.items() if name.lower() not in named}
            return ToolEndpoint(mine.url, {**more, **mine.headers})
        if mine is not None:
            raise ValueError(f"'{label}' is a server of this installation: leave server_url out, or take another label")
        try:
            address = read_address(url)
        except ValueError as error:
            raise ValueError(f"server_url {error}") from None
        if not any(pattern.allows(address) for pattern in self.patterns):
            raise ValueError("server_url is none of the addresses that this server may call (--allow-mcp-url)")
        return ToolEndpoint(url, dict(headers), address.shown)

    def check_headers(self, given: Any) -> dict[str, str]:
        """Return headers that may be sent. Raises `ValueError` with what is wrong."""
        return check_headers(given)

    def connect(self, endpoints: Mapping[str, ToolEndpoint]) -> RemoteSessions:
        """Return the connections of an answer."""
        return RemoteSessions(self, endpoints)


def remote_servers(registry: RouteRegistry) -> RemoteServers | None:
    """Return what the options allow; None if they allow nothing.

    Args:
        registry: That of a route plugin whose descriptor has the options of this distribution among its `settings`, and
            the kind `core.tool_servers` in `drives`.

    Raises:
        ConfigError: CORE-C195, an address, a pattern, a label or a header cannot be used.
        PluginError: CORE-P108, the client cannot be made.
    """
    found = registry.chosen(GROUP)
    if not found:
        return None
    given = registry.settings
    own = dict(_own(given))
    if unknown := sorted(given["mcp_headers"].keys() - own.keys()):
        raise _wrong(f"--mcp-headers names '{unknown[0]}'", "there is no --mcp-server of that label")
    return RemoteServers(
        found[0].value,
        own,
        tuple(_pattern(text) for text in given["allow_mcp_url"]),
        timeout=given["mcp_timeout"],
        result_chars=given["mcp_result_chars"],
        rounds=given["mcp_rounds"],
        fit=found[0].fit,
    )


def check_headers(given: Any) -> dict[str, str]:
    """Return headers that may be sent. Raises `ValueError` with what is wrong; values are not repeated."""
    if not isinstance(given, Mapping) or len(given) > _MAX_HEADERS:
        raise ValueError(f"must be an object of at most {_MAX_HEADERS} texts")
    for name, value in given.items():
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise ValueError("has a name that is none")
        if _RESERVED.fullmatch(name):
            raise ValueError(f"must not set '{name}', which belongs to the connection")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError(f"has a value for '{name}' that is no line of ASCII text")
    return dict(given)


def _own(given: Mapping[str, Any]) -> Iterator[tuple[str, ToolEndpoint]]:
    seen: set[str] = set()
    for text in given["mcp_server"]:
        label, equals, url = text.partition("=")
        if not equals or not LABEL.fullmatch(label):
            raise _wrong(
                f"--mcp-server '{label[:64]}'", "it must be LABEL=URL, a label of letters, digits, '_' and '-'"
            )
        if label in seen:
            raise _wrong(f"--mcp-server {label}", "the label is given twice")
        seen.add(label)
        try:
            read_address(url)
        except ValueError as error:
            raise _wrong(f"--mcp-server {label}", f"its address {error}") from None
        try:
            headers = check_headers(given["mcp_headers"].get(label, {}))
        except ValueError as error:
            raise _wrong(f"--mcp-headers of {label}", str(error)) from None
        yield label, ToolEndpoint(url, headers)


def _pattern(text: str) -> AddressPattern:
    try:
        return read_pattern(text)
    except ValueError as error:
        raise _wrong(f"--allow-mcp-url '{text[:200]}'", str(error)) from None


def _wrong(what: str, why: str) -> ConfigError:
    return ConfigError("CORE-C195", f"{what} cannot be used: {why}.", hint="See docs/responses.md, 'MCP servers'.")
