"""Watches an import: heavy packages are refused, and what reaches out of the process is recorded."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

HEAVY = frozenset({"torch", "triton", "transformers", "numpy", "jax", "tensorflow", "cupy", "scipy", "pandas"})
"""Top-level packages that a manifest must not import."""

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SIDE_EFFECTS = (
    "socket.",
    "subprocess.Popen",
    "os.fork",
    "os.exec",
    "os.posix_spawn",
    "os.system",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.",
)
_KEPT = 10


class Guard:
    """Between `start` and `stop`, refuses packages and records file writes, sockets and processes.

    Audit hooks cannot be taken away again, so a guard belongs into a process of its own.

    Attributes:
        imports: Refused packages that were asked for, whether or not the importer coped.
        effects: Side effects, the first few.
    """

    def __init__(self, refused: frozenset[str] = HEAVY) -> None:
        self.imports: list[str] = []
        self.effects: list[str] = []
        self._refused = refused
        self._active = False

    def start(self) -> None:
        """Begin to watch."""
        sys.dont_write_bytecode = True  # byte code would be a file write of the import system's own
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._audit)
        self._active = True

    def stop(self) -> None:
        """Watch no more."""
        self._active = False
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Refuse to import a heavy package; the import system's hook."""
        if name.split(".")[0] not in self._refused:
            return None
        self.imports.append(name)
        raise ModuleNotFoundError(f"the conformance kit refuses to import {name} here", name=name)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active or len(self.effects) >= _KEPT:
            return
        if event == "open" and _writes(*arguments[1:3]):
            self.effects.append(f"opens {arguments[0]} for writing")
        elif event.startswith(_SIDE_EFFECTS):
            self.effects.append(f"{event} {arguments[0] if arguments else ''}".strip())


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITES)


def deny_system_files() -> None:
    """From now on, reading /proc and /sys and starting processes fails in this process, as in a tight sandbox."""

    def deny(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" or (event == "open" and str(arguments[0]).startswith(("/proc", "/sys"))):
            raise PermissionError(f"the conformance kit denies {event} {arguments[0]}")

    hook: Callable[[str, tuple[Any, ...]], None] = deny
    sys.addaudithook(hook)
