"""Environment variables that are not options: each with what it does."""

from __future__ import annotations

import types
from collections.abc import Mapping

SETTINGS: Mapping[str, str] = types.MappingProxyType(
    {
        "CORE_CONFIG": "Configuration file, like --config.",
        "CORE_LOG_LEVEL": "Log level, like --log-level.",
        "CORE_LOG_FORMAT": "Log format, like --log-format.",
        "CORE_DEBUG": "Show tracebacks, like --debug.",
    }
)

OF_PLUGINS = "CORE_PLUGIN_"
"""Prefixes of variables that plugins read themselves."""
