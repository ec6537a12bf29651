"""Environment variables that set options by other names, and those that nothing reads."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from core.config.environment_names import OF_PLUGINS, SETTINGS
from core.config.fields import find_field, option_fields
from core.suggest import nearest

_log = logging.getLogger(__name__)


def further_variables(environ: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the variables that set options by names of other servers, by the option's path.

    Logs a warning for every `CORE_*` variable that nothing reads. `CORE_PLUGIN_*` belongs to plugins.
    """
    known = {name for field in option_fields() for name in field.envs} | set(SETTINGS)
    found: dict[str, list[str]] = {}
    for name in sorted(environ):
        if name.startswith("CORE_") and name not in known and not name.startswith(OF_PLUGINS):
            field = find_field(name.removeprefix("CORE_").lower())
            if field is not None:
                found.setdefault(field.path, []).append(name)
                continue
            _log.warning("environment variable %s is not an option and has no effect. %s", name, nearest(name, known))
    return found
