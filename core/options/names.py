"""Names of the options that stand here: those of plugins may not be called so."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import cache

from core.options.engine import KVOptions, RuntimeOptions, SchedulerOptions
from core.options.model import HubOptions, ModelOptions
from core.options.section import OptionsSection
from core.options.server import ServerOptions

SECTIONS: Mapping[str, type[OptionsSection]] = types.MappingProxyType(
    {
        "model": ModelOptions,
        "hub": HubOptions,
        "kv": KVOptions,
        "scheduler": SchedulerOptions,
        "runtime": RuntimeOptions,
        "server": ServerOptions,
    }
)
"""Name -> model of each section; `select`, whose options are the kinds', is not among them."""

ALIASES: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "model.hf_overrides": ("config-override",),
        "select.platform": ("device",),
        "select.load_format": ("weight-loader",),
    }
)
"""Further names of core's own, as flags without dashes in front. Those of other servers are known to plugins
(`core.config.dialects`).

They are names everywhere: `--x-y`, `CORE_X_Y`, and in a file `x_y` or `section.x_y`.
"""


@cache
def option_names() -> frozenset[str]:
    """Return the names of all options of these sections, and every further name, with `_`."""
    further = {name.replace("-", "_") for names in ALIASES.values() for name in names}
    return frozenset(name for section in SECTIONS.values() for name in section.model_fields) | further
