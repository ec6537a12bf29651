"""Plugins in a single file (`--plugin-file my_plugin.py`): registered as a distribution `file:my_plugin`.

The file's attribute `__core_drivers__` lists descriptors; functions marked `@hookimpl` make it a hook module as well.
The plan carries the file's absolute path and SHA-256, so that child processes load the very same bytes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from core.api.descriptors import Descriptor
from core.api.errors import PluginError
from core.api.installed import FILE_PREFIX
from core.plugins.catalog import Catalogue
from core.plugins.drivers import describe
from core.plugins.entry import FILE_DRIVERS, Entry
from core.plugins.kinds import HOOKS_GROUP
from core.plugins.plan import PlannedFile, PluginPlan
from core.signals import SignalExit

_DIGEST = "__core_sha256__"
_SHORT = 12


def open_files(paths: Iterable[str]) -> tuple[list[PlannedFile], list[Entry]]:
    """Load plugin files and return what they are and what they offer.

    Raises:
        PluginError: CORE-P303 when a file cannot be a plugin, CORE-P103 when it fails to import.
    """
    files: list[PlannedFile] = []
    entries: list[Entry] = []
    for path in dict.fromkeys(str(Path(text).expanduser().absolute()) for text in paths):
        name, source = Path(path).stem, _read(path)
        if any(Path(other.path).stem == name for other in files):
            raise _unusable(path, f"another plugin file is called '{name}' too", "Rename one of them.")
        file = PlannedFile(path=path, sha256=_digest(source))
        offered = list(_entries(file, _load(file, source)))
        if not offered:
            hint = f"Give it {FILE_DRIVERS} = [DESCRIPTOR, ...], or functions marked @hookimpl."
            raise _unusable(path, "it offers no plugin", hint)
        files.append(file)
        entries += offered
    return files, entries


def reopen_files(plan: PluginPlan, catalogue: Catalogue) -> Catalogue:
    """Load the plan's files in this process and return the catalogue with what they offer.

    Raises:
        PluginError: CORE-P302 when a file is gone or holds other bytes than the plan says.
    """
    entries: list[Entry] = []
    for file in plan.files:
        source = _read(file.path)
        if _digest(source) != file.sha256:
            raise PluginError(
                "CORE-P302",
                f"plugin file {file.path} changed after the plan was made: its SHA-256 was {file.sha256[:_SHORT]}..., "
                f"now it is {_digest(source)[:_SHORT]}....",
                hint="Start again.",
            )
        entries += _entries(file, _load(file, source))
    return catalogue.including(entries) if entries else catalogue


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise _unusable(path, f"it cannot be read: {error.strerror or error}") from error


def _load(file: PlannedFile, source: bytes) -> ModuleType:
    """Execute the bytes as a module under the file's name; the same bytes are executed once per process."""
    name = Path(file.path).stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, _DIGEST, None) == file.sha256 and known.__file__ == file.path:
        return known
    _check_name(file.path, name, known)
    module = ModuleType(name)
    module.__file__ = file.path
    module.__dict__[_DIGEST] = file.sha256
    sys.modules[name] = module
    try:
        exec(compile(source, file.path, "exec"), module.__dict__)
    except SignalExit:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        reason = f"plugin file {file.path} failed to import: {describe(error)}."
        raise PluginError("CORE-P103", reason, hint="Correct it, or leave --plugin-file out.") from error
    return module


def _check_name(path: str, name: str, known: ModuleType | None) -> None:
    """Refuse a name under which another module is, or would be, imported."""
    if not name.isidentifier() or Path(path).suffix != ".py":
        raise _unusable(path, "its name is not that of a Python module", "Rename it, for example to my_plugin.py.")
    if known is not None:
        origin = None if hasattr(known, _DIGEST) else known.__file__ or "built in"
    else:
        spec = find_spec(name)
        origin = spec.origin or "a package" if spec else None
    if origin is not None and origin != path:
        raise _unusable(path, f"a module '{name}' exists already ({origin})", "Rename the file.")


def _entries(file: PlannedFile, module: ModuleType) -> Iterator[Entry]:
    name, version = module.__name__, file.sha256[:_SHORT]
    drivers = getattr(module, FILE_DRIVERS, ())
    if not isinstance(drivers, (list, tuple)):
        raise _unusable(file.path, f"its {FILE_DRIVERS} is a {type(drivers).__name__}, not a list")
    for driver in drivers:
        if not isinstance(driver, Descriptor):
            raise _unusable(file.path, f"its {FILE_DRIVERS} holds a {type(driver).__name__}, not a descriptor")
        yield Entry(driver.group, driver.name, FILE_PREFIX + name, version, f"{name}:{FILE_DRIVERS}")
    # What pluggy's marker leaves on a function; asking pluggy itself needs a manager.
    if any(hasattr(value, "core_impl") for value in vars(module).values()):
        yield Entry(HOOKS_GROUP, name, FILE_PREFIX + name, version, name)


def _unusable(path: str, why: str, hint: str = "") -> PluginError:
    return PluginError("CORE-P303", f"plugin file {path} cannot be used: {why}.", hint=hint)
