"""The examination of one plugin, in the doctor's child process: everything that its descriptor names is imported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from core.api.descriptors import Descriptor, PlatformSpec
from core.api.errors import PluginError
from core.api.patches import Finding
from core.plugins.catalog import Entry
from core.plugins.contracts import check_contract
from core.plugins.defined import read_kinds
from core.plugins.definition import faults_of
from core.plugins.doctor.messages import Fault, Job, Report
from core.plugins.drivers import Candidate, LoadFailure, load_descriptors, load_impl, objects_of
from core.plugins.files import open_files
from core.plugins.hooks import Hooks
from core.plugins.kinds import HOOKS_GROUP, KINDS_GROUP
from core.plugins.options import settled_options
from core.selection.platforms import probed

if TYPE_CHECKING:
    from core.plugins.doctor.child import Glance


def examine(job: Mapping[str, Any], glance: Glance, caught: Iterable[warnings.WarningMessage]) -> Report:
    """Do a job and report; failures are collected.

    Args:
        job: A `Job` as plain data.
        glance: What importing the manifest took.
        caught: Fills up with the warnings of the plugin's modules.
    """
    wanted = Job.model_validate(job)
    report = _file(wanted.file) if wanted.file else Report()
    entry = wanted.entry
    if entry is None:
        return report
    report.milliseconds, report.heavy = glance.milliseconds, list(glance.heavy)
    if entry.group == HOOKS_GROUP:
        _hooks(entry, report)
    elif entry.group == KINDS_GROUP:
        _definition(entry, report)
    elif not report.faults:
        _driver(entry, report)
    report.deprecations = list(dict.fromkeys(_deprecations(entry, caught)))
    return report


def _file(path: str) -> Report:
    """Execute a plugin file and say what it offers."""
    report = Report()
    try:
        report.offered = open_files([path])[1]
    except PluginError as error:
        report.faults.append(Fault(code=error.code, reason=error.message.rstrip("."), hint=error.hint))
    return report


def _hooks(entry: Entry, report: Report) -> None:
    """Register the hook module and let it check this machine."""
    hooks = Hooks([entry], options=partial(settled_options, given={}))
    report.faults += [_fault(failure) for failure in hooks.failures]
    report.told = [finding for _, finding in hooks.doctor()]


def _definition(entry: Entry, report: Report) -> None:
    """Look at a kind that a plugin defines, and at what it names."""
    found = read_kinds([entry])
    report.faults += [_fault(failure) for failure in found.faults]
    for kind in found.kinds.values():
        report.faults += [Fault(code="CORE-P132", reason=reason, hint="") for reason in faults_of(kind)]


def _driver(entry: Entry, report: Report) -> None:
    try:
        loaded = entry.load()
    except Exception:
        loaded = None
    else:
        report.found, report.descriptor = type(loaded).__name__, isinstance(loaded, Descriptor)
    candidates, failures = load_descriptors([entry])
    report.faults += [_fault(failure) for failure in failures]
    for candidate in candidates:
        report.elsewhere = any(_package(path) != _package(entry.value) for path in objects_of(candidate.descriptor))
        report.faults += _implementation(entry, candidate.descriptor)
        if isinstance(candidate.descriptor, PlatformSpec) and not report.faults:
            _probe(candidate, report)


def _probe(platform: Candidate, report: Report) -> None:
    """Ask a platform for its device; that there is none here is no fault."""
    try:
        found = probed(platform)
    except PluginError as error:
        report.faults.append(Fault(code=error.code, reason=_reason(error), hint=error.hint))
        return
    for index in range(max(1, found.count)):
        device = found.of(index) if found.count else found
        if not device.available:
            which = f" (device {index})" if found.count else ""
            told = f"not here{which}, because: {device.reason or 'the probe does not say'}"
            report.told.append(Finding(level="ok", message=told))


def _implementation(entry: Entry, descriptor: Descriptor) -> Iterable[Fault]:
    for path in objects_of(descriptor):
        try:
            check_contract(entry, descriptor, path, load_impl(path, entry))
        except PluginError as error:
            yield Fault(code=error.code, reason=_reason(error), hint=error.hint)


def _reason(error: PluginError) -> str:
    """Return the message without the plugin's name, which the finding has already."""
    found = error.message.partition("cannot be used: ")[2] or error.message.partition("): ")[2]
    return (found or error.message).rstrip(".")


def _fault(failure: LoadFailure) -> Fault:
    return Fault(code=failure.code, reason=failure.reason, hint=failure.hint)


def _deprecations(entry: Entry, caught: Iterable[warnings.WarningMessage]) -> Iterable[str]:
    """Return deprecated uses in the plugin's own files: those of its libraries are not its authors' to mend."""
    root = _root(sys.modules.get(_package(entry.value)))
    for warning in caught:
        if issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            path = Path(warning.filename)
            if root is not None and (path == root or root in path.parents):
                yield f"{warning.message} ({'/'.join(PurePath(path).parts[-2:])}:{warning.lineno})"


def _package(path: str) -> str:
    """Return the top-level package of an object reference."""
    return path.partition(":")[0].partition(".")[0].strip()


def _root(module: ModuleType | None) -> Path | None:
    """Return the folder of a package, or the file of a module."""
    if module is None:
        return None
    folders: list[Any] = list(getattr(module, "__path__", []))
    file = folders[0] if folders else module.__file__
    return Path(file) if file else None
