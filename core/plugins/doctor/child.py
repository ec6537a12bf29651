"""The doctor's child process: `python -P -m core.plugins.doctor.child`. Imports one plugin and reports.

Standard input brings a `Job`, standard output takes one `Report`; what the plugin prints goes to standard error.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from core.api.descriptors import Descriptor
from core.api.errors import PluginError
from core.plugins.catalog import Entry
from core.plugins.doctor.messages import Fault, Job, Report, Told
from core.plugins.drivers import LoadFailure, load_entries, load_impl
from core.plugins.hooks import Hooks
from core.plugins.kinds import HOOKS_GROUP

HEAVY = ("torch", "triton", "transformers", "numpy")
_DOTTED = ("probe", "shape", "refine", "check", "options", "impl", "worker_impl", "sender")
"""Fields of descriptors that name an object; light ones first."""


def main() -> int:
    """Do the job."""
    job = Job.model_validate_json(sys.stdin.buffer.readline())
    channel = os.dup(1)
    os.dup2(2, 1)
    sys.path[:] = job.path
    report = examine(job.entry)
    with os.fdopen(channel, "wb") as out:
        out.write(report.model_dump_json().encode())
    return 0


def examine(entry: Entry) -> Report:
    """Import the manifest, then everything that the descriptor names; failures are collected."""
    report = Report()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _manifest(entry, report)
        if entry.group == HOOKS_GROUP:
            _hooks(entry, report)
        elif not report.faults:
            _driver(entry, report)
    report.deprecations = list(dict.fromkeys(_deprecations(entry, caught)))
    return report


def _manifest(entry: Entry, report: Report) -> None:
    """Import the manifest's module alone, to see what it takes."""
    before = set(sys.modules)
    began = time.perf_counter()
    try:
        import_module(entry.value.partition(":")[0].strip())
    except (Exception, SystemExit):
        return  # `load_entries` meets the same failure and words it as a start would
    finally:
        report.milliseconds = (time.perf_counter() - began) * 1000
        new = set(sys.modules) - before
        # pluggy, stevedore and pydantic are here already, so what is new is the manifest's doing.
        report.heavy = [name for name in HEAVY if name in new]


def _hooks(entry: Entry, report: Report) -> None:
    """Register the hook module and let it check this machine."""
    hooks = Hooks([entry])
    report.faults += [_fault(failure) for failure in hooks.failures]
    report.told = [Told.model_validate(finding.model_dump()) for _, finding in hooks.doctor()]


def _driver(entry: Entry, report: Report) -> None:
    try:
        loaded = entry.load()
    except Exception:
        loaded = None
    else:
        report.found, report.descriptor = type(loaded).__name__, isinstance(loaded, Descriptor)
    candidates, failures = load_entries(entry.group, [entry])
    report.faults += [_fault(failure) for failure in failures]
    for candidate in candidates:
        report.faults += _implementation(entry, candidate.descriptor)


def _implementation(entry: Entry, descriptor: Descriptor) -> Iterable[Fault]:
    named = [getattr(descriptor, field, None) for field in _DOTTED]
    managers: dict[str, str] = getattr(descriptor, "kv_managers", {})
    for path in (*named, *managers.values()):
        if not isinstance(path, str):
            continue  # absent, or a method of the same name
        try:
            load_impl(path, entry)
        except PluginError as error:
            yield Fault(code=error.code, reason=_reason(error), hint=error.hint)


def _reason(error: PluginError) -> str:
    """Return the message without the plugin's name, which the finding has already."""
    return error.message.partition("cannot be used: ")[2].rstrip(".")


def _fault(failure: LoadFailure) -> Fault:
    return Fault(code=failure.code, reason=failure.reason, hint=failure.hint)


def _deprecations(entry: Entry, caught: Iterable[warnings.WarningMessage]) -> Iterable[str]:
    """Return deprecated uses in the plugin's own files: those of its libraries are not its authors' to mend."""
    root = _root(sys.modules.get(entry.value.partition(":")[0].partition(".")[0]))
    for warning in caught:
        if issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            path = Path(warning.filename)
            if root is not None and (path == root or root in path.parents):
                yield f"{warning.message} ({'/'.join(PurePath(path).parts[-2:])}:{warning.lineno})"


def _root(module: ModuleType | None) -> Path | None:
    """Return the folder of a package, or the file of a module."""
    if module is None:
        return None
    folders: list[Any] = list(getattr(module, "__path__", []))
    file = folders[0] if folders else module.__file__
    return Path(file) if file else None


if __name__ == "__main__":
    sys.exit(main())
