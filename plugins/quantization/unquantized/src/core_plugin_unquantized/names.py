"""Lists of modules that a checkpoint leaves plain. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase


def listed(given: Mapping[str, object], *keys: str) -> tuple[str, ...]:
    """Return the names under the first of `keys` that a `quantization_config` has; empty where none is a list."""
    found = next((given[key] for key in keys if given.get(key)), ())
    return tuple(str(name) for name in found) if isinstance(found, list | tuple) else ()


def names_module(names: Iterable[str], module: str) -> bool:
    """Whether one of `names` is that of a module, of one that it is in, or a run of its path's parts (`mlp.gate`).

    A `*` stands for anything.
    """
    path = f".{module}."
    return any(fnmatchcase(module, name) if "*" in name else f".{name}." in path for name in names)
