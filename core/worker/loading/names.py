"""A model's weight rules, applied to checkpoint names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import zip_longest
from typing import TYPE_CHECKING

from core.api.record import EMPTY

if TYPE_CHECKING:
    from core.api.models import WeightRules


class NameMap:
    """Checkpoint name -> parameter name.

    Args:
        rules: Renames (prefixes, first match wins), globs of checkpoint names that are left out, and of those that
            are transposed.
        left_out: Parameter names that are left out.
        aliases: Other parameter names -> those that layers have.
    """

    def __init__(self, rules: WeightRules, left_out: Collection[str], aliases: Mapping[str, str] = EMPTY) -> None:
        self._rules = rules
        self._renames = [(_pattern(old), new) for old, new in rules.rename]
        self._left_out = frozenset(left_out)
        self._aliases = aliases

    def __call__(self, name: str) -> str | None:
        """Return the parameter name, or None when the tensor is left out on purpose."""
        if any(fnmatchcase(name, pattern) for pattern in self._rules.skip):
            return None
        for old, new in self._renames:
            if found := old.match(name):
                name = _filled(new, found.groups()) + name[found.end() :]
                break
        return None if name in self._left_out else self._aliases.get(name, name)

    def of_experts(self, name: str) -> tuple[str, int | None] | None:
        """Return what the parameters are called that a tensor with this name after renaming holds one of for each
        expert, `{}` for the number, and the number of experts whose rows it holds one under another, or None where its
        first dimension counts them. None if it is no such tensor."""
        for ending, each, *count in self._rules.experts:
            if name.endswith(ending):
                return name.removesuffix(ending) + each, next(iter(count), None)
        # What a format has beside or in the place of a weight: `gate_up_proj_scales` -> `gate_up_proj.weight_scales`.
        for ending, each, *count in self._rules.experts:
            begins, found, further = name.rpartition(f"{ending}_")
            if found and "." not in further and each.endswith(".weight"):
                return f"{begins}{each}_{further}", next(iter(count), None)
        # Or before and behind its name: `_gate_up_proj_scale` -> `gate_up_proj._weight_scale`.
        for ending, each, *count in self._rules.experts:
            path, _, last = ending.rpartition(".")
            begins, found, further = name.rpartition(f"{path}._{last}_")
            if found and "." not in further and each.endswith(".weight"):
                return f"{begins}{each.removesuffix('weight')}_weight_{further}", next(iter(count), None)
        return None

    def leaves_out(self, name: str) -> bool:
        """Say whether no layer needs the parameter `name`."""
        return name in self._left_out

    def transposes(self, name: str) -> bool:
        """Say whether the checkpoint tensor `name` is stored the other way round: a weight, or what a format has in its
        place with its dimensions (`_weight_scale` of `weight`)."""
        module, weight, _ = name.rpartition("._weight_")
        names = (name, f"{module}.weight") if weight else (name,)
        return any(fnmatchcase(one, pattern) for one in names for pattern in self._rules.transpose)


def _pattern(begins: str) -> re.Pattern[str]:
    """Return what finds names that begin so; each `*` is a group."""
    return re.compile("([^.]+)".join(map(re.escape, begins.split("*"))))


def _filled(text: str, captures: Sequence[str]) -> str:
    """Return `text` with its stars replaced, in order."""
    pieces = text.split("*")
    return "".join(piece for pair in zip_longest(pieces, captures[: len(pieces) - 1], fillvalue="") for piece in pair)
