"""Hook modules that guard: left out because they cannot be used, they would let everything pass."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from core.api.errors import PluginError
from core.plugins.drivers import LoadFailure

GUARDS = ("core_request", "core_validate")
"""Hooks that may refuse: a request, a configuration."""

_NAMED = re.compile(rf"\b({'|'.join(GUARDS)})\b|\bimport\s*\*")


def failed_guard(failure: LoadFailure, *, strict: bool = False) -> PluginError | None:
    """Return the error that stops a start without this hook module; None for one that only observes.

    The module cannot be imported, so its source is asked: does it name a hook that guards? One whose source cannot be
    read, or imports whatever another module has, counts as a guard.

    Args:
        strict: Every hook module that cannot be used stops the start.
    """
    entry = failure.entry
    named = _hooks_named(entry.value.partition(":")[0])
    if not named and not strict:
        return None
    why = f"it may guard ({named})" if named else "with --strict nothing is left out"
    return PluginError(
        "CORE-P163",
        f"hook plugin '{entry.name}' ({entry.owner}) cannot be used, and {why}: {failure.code} {failure.reason}.",
        hint=f"Mend it, or start without it: --disable-plugin {entry.name}@{entry.dist}.",
    )


def _hooks_named(module: str) -> str:
    """Return the hooks that guard of which a module's source speaks, or why that cannot be told; empty for none."""
    try:
        spec = find_spec(module)
        origin = spec.origin if spec else None
        if origin is None:
            return "its source is not there"
        found = set(_NAMED.findall(Path(origin).read_text(encoding="utf-8")))
    except Exception as error:  # a package above it may raise anything
        return f"its source cannot be read, {type(error).__name__}"
    return ", ".join(name or "whatever it imports with *" for name in sorted(found))
