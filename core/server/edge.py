"""The edge of the server (keys, origins, certificates), checked before anything starts."""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Any

from core.api.errors import ConfigError
from core.options.server import ServerOptions

_ORIGIN = re.compile(r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
_TOKEN = re.compile(r"\*|[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ANY = "*"

_LISTS = (("allowed_origins", _ORIGIN), ("allowed_methods", _TOKEN), ("allowed_headers", _TOKEN))
_HINT = "An origin is what a browser sends: https://app.example.com or http://localhost:3000, or * for all of them."

PRIVATE: Mapping[str, Any] = types.MappingProxyType(
    {
        name: ServerOptions.model_fields[name].get_default(call_default_factory=True)
        for name in (
            *("allowed_origins", "allowed_methods", "allowed_headers", "allow_credentials", "root_path"),
            *("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_cert_reqs", "ssl_ciphers", "enable_ssl_refresh"),
        )
    }
)
"""Options of a server that serves the process that started it, and nobody else: no browser, no TLS, no prefix."""


def check_origins(server: ServerOptions) -> None:
    """Check what browsers may do.

    Raises:
        ConfigError: CORE-C173, an origin can never match, all of them may send credentials, or options mean nothing.
    """
    for name, form in _LISTS:
        for value in getattr(server, name):
            if value != _ANY and not form.fullmatch(value):
                raise _refusal(f"{flag(name)}: {value!r} can never match what a browser sends.")
    if server.allow_credentials and _ANY in server.allowed_origins:
        raise _refusal(
            "--allow-credentials and --allowed-origins * would let every web page act as whoever looks at it.",
            "Name the origins, or leave out --allow-credentials: keys are sent as headers and are not meant by it.",
        )
    if not server.allowed_origins:
        for name in ("allowed_methods", "allowed_headers", "allow_credentials"):
            if getattr(server, name) != PRIVATE[name]:
                raise _refusal(f"{flag(name)} means nothing without --allowed-origins: no origin is allowed.")


def _refusal(message: str, hint: str = _HINT) -> ConfigError:
    return ConfigError("CORE-C173", message, hint=hint)


def flag(name: str) -> str:
    """Return how an option is called on the command line."""
    return "--" + name.replace("_", "-")
