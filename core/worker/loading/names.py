"""A model's weight rules, applied to checkpoint names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from core.api.record import EMPTY

if TYPE_CHECKING:
    from core.api.models import WeightRules


class NameMap:
    """Checkpoint name -> parameter name.

    Args:
        rules: Renames (prefixes, first match wins), globs of checkpoint names that are left out, and of those that
            are transposed.
        tied: Parameter names that are left out because their layer shares another's parameters.
        aliases: Other parameter names -> those that layers have.
    """

    def __init__(self, rules: WeightRules, tied: Collection[str], aliases: Mapping[str, str] = EMPTY) -> None:
        self._rules = rules
        self._tied = frozenset(tied)
        self._aliases = aliases

    def __call__(self, name: str) -> str | None:
        """Return the parameter name, or None when the tensor is left out on purpose."""
        if any(fnmatchcase(name, pattern) for pattern in self._rules.skip):
            return None
        for old, new in self._rules.rename:
            if name.startswith(old):
                name = new + name.removeprefix(old)
                break
        return None if name in self._tied else self._aliases.get(name, name)

    def transposes(self, name: str) -> bool:
        """Say whether the checkpoint tensor `name` is stored the other way round."""
        return any(fnmatchcase(name, pattern) for pattern in self._rules.transpose)
