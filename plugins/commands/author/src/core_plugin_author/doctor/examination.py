"""The examination of one plugin, in the doctor's child process: everything that its descriptor names is imported."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

from core.api import Descriptor, Finding, InstalledPlugin, InstalledPlugins, PluginError, PluginFault, ProbeResult
from core_plugin_author.doctor.messages import Job, Report

if TYPE_CHECKING:
    from core_plugin_author.doctor.child import Glance


def examine(
    plugins: InstalledPlugins, job: Mapping[str, Any], glance: Glance, caught: Iterable[warnings.WarningMessage]
) -> Report:
    """Do a job and report; failures are collected.

    Args:
        plugins: What is installed in this process.
        job: A `Job` as plain data.
        glance: What importing the manifest took.
        caught: Fills up with the warnings of the plugin's modules.
    """
    wanted = Job.model_validate(job)
    report = _file(plugins, wanted.file) if wanted.file else Report()
    if wanted.entry is None:
        return report
    report.milliseconds, report.heavy = glance.milliseconds, list(glance.heavy)
    if not report.faults:
        _plugin(plugins, wanted.entry, report)
    report.deprecations = list(dict.fromkeys(_deprecations(wanted.entry, caught)))
    return report


def _file(plugins: InstalledPlugins, path: str) -> Report:
    """Execute a plugin file and say what it offers."""
    report = Report()
    try:
        report.offered = list(plugins.open_file(path))
    except PluginError as error:
        report.faults.append(PluginFault(error.code, error.message.rstrip("."), error.hint))
    return report


def _plugin(plugins: InstalledPlugins, plugin: InstalledPlugin, report: Report) -> None:
    """Import the plugin with everything that it names."""
    check = plugins.check(plugin)
    report.faults += check.faults
    report.told = [*check.told, *(_absent(check.probe) if check.probe else ())]
    report.descriptor = isinstance(check.loaded, Descriptor)
    report.elsewhere = any(_package(path) != _package(plugin.value) for path in check.objects)


def _absent(probe: ProbeResult) -> Iterator[Finding]:
    """Yield which of a platform's devices cannot be used here; that is no fault."""
    for index in range(max(1, probe.count)):
        device = probe.of(index) if probe.count else probe
        if not device.available:
            which = f" (device {index})" if probe.count else ""
            told = f"not here{which}, because: {device.reason or 'the probe does not say'}"
            yield Finding(level="ok", message=told)


def _deprecations(plugin: InstalledPlugin, caught: Iterable[warnings.WarningMessage]) -> Iterable[str]:
    """Return deprecated uses in the plugin's own files: those of its libraries are not its authors' to mend."""
    root = _root(sys.modules.get(_package(plugin.value)))
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
