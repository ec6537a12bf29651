"""Contents of the modules of some packages, to be compared after a plugin was imported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

_MISSING = object()

Snapshot = Mapping[str, Mapping[str, Any]]
"""Module or `module.Class` -> its attributes. The values are kept, so that their identities stay theirs."""


def take(packages: tuple[str, ...]) -> Snapshot:
    """Return the attributes of every loaded module of `packages`, and of the classes that they define."""
    found: dict[str, Mapping[str, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when they are looked at
        for name, module in list(sys.modules.items()):
            if not isinstance(module, ModuleType) or name.split(".")[0] not in packages:
                continue
            attributes = found[name] = dict(vars(module))
            for value in attributes.values():
                if isinstance(value, type) and value.__module__ == name:
                    found[f"{name}.{value.__qualname__}"] = dict(vars(value))
    return found


def changes(before: Snapshot, packages: tuple[str, ...], owner: str) -> list[str]:
    """Return `module.attribute` for everything that is another object now.

    Of core every change counts. Of other packages those count that replace code, or that put something of `owner`'s
    into the package: libraries keep caches and switches of their own in their modules.
    """
    now = take(packages)
    found = []
    for module, old in before.items():
        new = now.get(module, {})
        for name in old.keys() | new.keys():
            pair = old.get(name, _MISSING), new.get(name, _MISSING)
            if pair[0] is not pair[1] and _counts(module, name, *pair, owner):
                found.append(f"{module}.{name}")
    return sorted(found)


def _counts(module: str, name: str, old: object, new: object, owner: str) -> bool:
    if isinstance(new, ModuleType) and new.__name__ == f"{module}.{name}":
        return False  # importing a submodule sets it on its package
    if name in ("__warningregistry__", "__abstractmethods__", "_abc_impl"):
        return False
    if module.split(".")[0] == "core":
        return True
    return (old is not _MISSING and callable(old)) or owner in _origins(new)


def _origins(value: object) -> Iterator[str]:
    for holder in (value, type(value)):
        yield str(getattr(holder, "__module__", "")).split(".")[0]
