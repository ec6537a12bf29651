"""Environment variables that are not options: each with what it does."""

from __future__ import annotations

import logging
import types
from collections.abc import Mapping

from core.config.fields import option_fields
from core.suggest import nearest

SETTINGS: Mapping[str, str] = types.MappingProxyType(
    {
        "CORE_CONFIG": "Configuration file, like --config.",
        "CORE_LOG_LEVEL": "Log level, like --log-level.",
        "CORE_LOG_FORMAT": "Log format, like --log-format.",
        "CORE_DEBUG": "Show tracebacks, like --debug.",
    }
)

_log = logging.getLogger(__name__)


def warn_unknown(environ: Mapping[str, str]) -> None:
    """Log a warning for every `CORE_*` variable that nothing reads. `CORE_PLUGIN_*` belongs to plugins."""
    known = {name for field in option_fields() for name in field.envs} | set(SETTINGS)
    for name in sorted(environ):
        if name.startswith("CORE_") and name not in known and not name.startswith("CORE_PLUGIN_"):
            _log.warning("environment variable %s is not an option and has no effect. %s", name, nearest(name, known))
