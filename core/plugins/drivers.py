"""Drivers: from catalogue entries to descriptors, and from a descriptor to its implementation.

The only file that imports stevedore. A plugin that cannot be loaded is recorded, never fatal for the others.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, Literal, TypeVar, cast

from core.api.descriptors import Descriptor
from core.api.errors import CoreError, PluginError
from core.api.kinds import Kind
from core.plugins.contracts import check_contract, paths_in
from core.plugins.entry import Entry, duplicate
from core.plugins.kinds import KINDS, kind_of
from core.signals import SignalExit

T = TypeVar("T")

MODULE_ABSENT = "CORE-P111"
"""Code of a plugin for libraries that are not here, those of another device for instance: nobody is warned of it."""
D = TypeVar("D", bound=Descriptor)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry and the descriptor it names.

    Attributes:
        reference_only: Of a kernel: chosen for the reference form that it names, not for itself.
    """

    entry: Entry
    descriptor: Descriptor
    reference_only: bool = False

    def spec(self, kind: type[D]) -> D:
        """Return the descriptor, of the type that its kind has."""
        return cast(D, self.descriptor)


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """Why an entry gave no usable plugin: a stable code, the reason, and what to do about it."""

    entry: Entry
    code: str
    reason: str
    hint: str = ""

    @property
    def state(self) -> Literal["absent", "failed"]:
        """`absent` where a library is not here that the plugin is for: nothing is wrong with the plugin."""
        return "absent" if self.code == MODULE_ABSENT else "failed"

    def error(self, asked_by: str = "") -> PluginError:
        """Return the failure as an error; `asked_by` says whose wish made it fatal."""
        label = kind_of(self.entry.group).label
        message = f"{label} '{self.entry.name}' ({self.entry.owner}) cannot be used: {self.reason}."
        wish = f"It was requested by {asked_by}, so core stops here." if asked_by else ""
        return PluginError(self.code, message, hint=" ".join(text for text in (wish, self.hint) if text))


def load_descriptors(entries: Sequence[Entry], *, usable: bool = True) -> tuple[list[Candidate], list[LoadFailure]]:
    """Load and check the descriptors that `entries` of one group name, in their order; nothing else is imported.

    Args:
        usable: Whether what they need (`Descriptor.imports`, `requires`) has to be installed here.
    """
    candidates: list[Candidate] = []
    manager, failures = _manager(entries)
    for extension in manager:
        found = checked(extension.entry_point, extension.plugin, usable=usable)
        if isinstance(found, Candidate):
            candidates.append(found)
        else:
            failures.append(found)
    return candidates, failures


def descriptor_of(group: str) -> type[Descriptor]:
    """Return the class of what entry points of a group name; of a group that is no kind, that of all descriptors."""
    module, _, name = kind_of(group).descriptor.partition(":")
    found: type[Descriptor] = getattr(importlib.import_module(module), name) if module else Descriptor
    return found


def load_impl(path: str, entry: Entry) -> Any:
    """Import `package.module:Attribute` on behalf of the plugin `entry`.

    Raises:
        PluginError: CORE-P103 with plugin, distribution, version and the innermost cause.
    """
    module, _, attributes = path.partition(":")
    try:
        return reduce(getattr, attributes.split(".") if attributes else [], importlib.import_module(module))
    except SignalExit:
        raise
    except (Exception, SystemExit) as error:
        failure = LoadFailure(entry, "CORE-P103", f"importing {path} failed: {describe(error)}")
        raise failure.error() from error


def objects_of(descriptor: Descriptor) -> list[str]:
    """Return the dotted names of every object that a descriptor names, light ones first, the implementation late."""
    kind = kind_of(descriptor.group)
    further = [field for field in (*kind.names, *kind.contracts) if field != "impl"]
    fields = dict.fromkeys((*kind.calls, "options", "impl", *further))
    return [path for field in fields for path in paths_in(descriptor, field)]


def instantiate(candidate: Candidate, options: Mapping[str, Any]) -> Any:
    """Import the implementation of a kind that is made with nothing but its options, and make an object of it.

    Raises:
        PluginError: As `load_impl`; CORE-P160 when it is not what its kind needs; CORE-P108 when it cannot be made.
    """
    descriptor, entry = candidate.descriptor, candidate.entry
    loaded = load_impl(descriptor.impl, entry)
    check_contract(entry, descriptor, descriptor.impl, loaded)
    return guarded(entry, descriptor.impl, loaded, *own_arguments(descriptor, options))


def own_arguments(descriptor: Descriptor, options: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return what an object is made with that nothing but its plugin's options are given to: them, if it has any."""
    return () if descriptor.options is None else (dict(options),)


def raised(entry: Entry, what: str, error: BaseException) -> PluginError:
    """Return the error that attributes an exception in a plugin's code to the plugin."""
    label = kind_of(entry.group).label
    return PluginError("CORE-P108", f"{label} '{entry.name}' ({entry.owner}): {what} raised {describe(error)}.")


def guarded(entry: Entry, what: str, function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a plugin's function; errors without a code, and `sys.exit`, become CORE-P108 with the plugin's name."""
    try:
        return function(*arguments, **named)
    except (CoreError, SignalExit):
        raise
    except (Exception, SystemExit) as error:
        raise raised(entry, what, error) from error


def guarded_items(entry: Entry, what: str, function: Callable[..., Iterable[T]], *arguments: Any) -> Iterator[T]:
    """Yield what a plugin's function gives; what it raises in between is attributed as `guarded` does."""
    try:
        yield from function(*arguments)
    except (CoreError, SignalExit):
        raise
    except (Exception, SystemExit) as error:
        raise raised(entry, what, error) from error


def typed(entry: Entry, what: str, value: object, kind: type[T]) -> T:
    """Return `value` if it is a `kind`; otherwise CORE-P108 says what the plugin's function gave instead."""
    if isinstance(value, kind):
        return value
    label = kind_of(entry.group).label
    message = f"{label} '{entry.name}' ({entry.owner}): {what} gave a {type(value).__name__}, not a {kind.__name__}."
    raise PluginError("CORE-P108", message)


def describe(error: BaseException) -> str:
    """Return an exception as one line: what it says, its innermost cause, and where that happened."""
    inner, seen = error, {id(error)}
    while (cause := inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)) is not None:
        if id(cause) in seen:  # somebody raised an exception from itself
            break
        inner = cause
        seen.add(id(cause))
    text = _line(inner)
    if inner is not error and not isinstance(error, ImportError):
        text = f"{_line(error)}, caused by {text}"
    return text + _place(inner)


def _line(error: BaseException) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    if not frames or frames[-1].filename == __file__ or "importlib" in frames[-1].filename:
        return ""
    return f" ({'/'.join(PurePath(frames[-1].filename).parts[-2:])}:{frames[-1].lineno})"


def _manager(entries: Sequence[Entry]) -> tuple[Any, list[LoadFailure]]:
    """Return a stevedore manager over `entries` and the list of what it could not import."""
    from stevedore.extension import ExtensionManager

    class DescriptorManager(ExtensionManager):  # type: ignore[type-arg]  # generic in newer releases only
        """Fed from the catalogue, so that its disk cache (which loses distributions) is never asked."""

        def list_entry_points(self) -> Any:
            return list(entries)

    failures: list[LoadFailure] = []

    def failed(_: object, entry: Any, error: BaseException) -> None:
        failures.append(LoadFailure(entry, "CORE-P103", f"it failed to import: {describe(error)}"))

    def conflict(_: str, name: str, extensions: list[Any]) -> Any:
        raise duplicate([extension.entry_point for extension in extensions])

    manager = DescriptorManager(
        "core", propagate_map_exceptions=True, on_load_failure_callback=failed, conflict_resolver=conflict
    )
    return manager, failures


def checked(entry: Entry, loaded: object, *, usable: bool = True) -> Candidate | LoadFailure:
    """Hold what an entry point gave against the rules of its group."""
    try:
        expected = descriptor_of(entry.group)
    except Exception as error:
        reason = f"what entry points of {entry.group} name cannot be imported: {describe(error)}"
        return LoadFailure(entry, "CORE-P132", reason)
    if not isinstance(loaded, expected):
        reason = f"{entry.value} is a {type(loaded).__name__}, not a {expected.__name__}"
        return LoadFailure(entry, "CORE-P106", reason)
    if loaded.name != entry.name:
        return LoadFailure(
            entry, "CORE-P106", f"its descriptor is named '{loaded.name}', its entry point '{entry.name}'"
        )
    kind = kind_of(entry.group)
    if not kind.accepts(loaded.api):
        return _outside_window(entry, kind, loaded.api)
    if not usable:
        return Candidate(entry, loaded)
    absent = unfound(loaded.imports)
    if absent:
        reason = "; ".join(f"it needs the module {name}, which is not installed" for name in absent)
        return LoadFailure(entry, MODULE_ABSENT, reason, f"Install what brings {' and '.join(absent)} here.")
    missing = unmet(loaded.requires)
    if missing:
        hint = "Install it: pip install " + " ".join(f'"{text}"' for text, _ in missing)
        return LoadFailure(entry, "CORE-P105", "; ".join(f"it needs {text}, {why}" for text, why in missing), hint)
    return Candidate(entry, loaded)


def _outside_window(entry: Entry, kind: Kind, api: int) -> LoadFailure:
    first, current = kind.first_api, kind.api
    window = f"{first} to {current}" if first < current else f"{current}"
    core = entry.group in KINDS
    hint = f"Upgrade {'core' if core else f'what defines {kind.group}'}." if api > current else f"Upgrade {entry.dist}."
    offers = f"{'this core' if core else kind.group} offers {window}"
    return LoadFailure(entry, "CORE-P104", f"it needs {kind.label} API {api}; {offers}", hint)


def unfound(imports: Iterable[str]) -> list[str]:
    """Return the modules of these that cannot be imported here; none is imported."""
    return [name for name in imports if find_spec(name) is None]


def unmet(requires: Sequence[str]) -> list[tuple[str, str]]:
    """Return `(requirement, what is there instead)` for every PEP 508 requirement that does not hold here."""
    if not requires:
        return []
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import InvalidRequirement, Requirement

    missing = []
    for text in requires:
        try:
            wanted = Requirement(text)
            if wanted.marker is not None and not wanted.marker.evaluate():
                continue
            found = version(wanted.name)
            if not wanted.specifier.contains(found, prereleases=True):
                missing.append((text, f"{found} is installed"))
        except PackageNotFoundError:
            missing.append((text, "which is not installed"))
        except InvalidRequirement:
            missing.append((text, "which is not a valid requirement"))
    return missing
