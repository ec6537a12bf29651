"""The doctor's parent side: one child process per plugin, a few at a time, each within a time limit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from core.api import FILE_PREFIX, CommandHost, InstalledPlugin, PluginFault
from core_plugin_author.doctor.finding import Finding, Level
from core_plugin_author.doctor.messages import Job, Report
from core_plugin_author.doctor.remembered import Remembered

HOOKS_GROUP, KINDS_GROUP = "core.plugins", "core.kinds"
MODULE_ABSENT = "CORE-P111"
"""Code of a plugin for a library that is not here."""

MANIFEST_MS = 20.0
"""Milliseconds of processor time that a manifest may take, over the import of `core.api`."""

_LIBRARY = re.compile(r"(?<!\S)(\S+\.(?:so|dylib|dll)[.\d]*): cannot open shared object file")
_LAST_LINES = 3


class Result(NamedTuple):
    """Findings on one plugin.

    Attributes:
        before: It was found on an earlier day and holds still; nothing was imported.
    """

    entry: InstalledPlugin
    findings: list[Finding]
    before: bool = False


def examine(
    host: CommandHost,
    entries: Sequence[InstalledPlugin],
    *,
    files: Mapping[str, str],
    timeout: float = 60.0,
    jobs: int | None = None,
    remembered: Remembered | None = None,
) -> Iterator[Result]:
    """Import every plugin in a process of its own; yield what is wrong with each as soon as it is known.

    Args:
        files: The plugin files that entries come from: distribution -> path.
        timeout: Seconds that one plugin's imports may take.
        jobs: Processes at a time; default: as many as there are processors, at most 4.
        remembered: What was found before, which is not examined again; learns what is found now.
    """
    rest = []
    for entry in entries:
        known = remembered.findings(entry) if remembered and entry.dist not in files else None
        if known is None:
            rest.append(entry)
        else:
            yield Result(entry, known, before=True)
    pool = ThreadPoolExecutor(jobs or min(4, os.cpu_count() or 1))
    try:
        running = {pool.submit(_examine, host, entry, files.get(entry.dist), timeout): entry for entry in rest}
        for future in as_completed(running):
            entry, (findings, lasting) = running[future], future.result()
            if remembered and lasting:
                remembered.keep(entry, findings)
            yield Result(entry, findings)
    finally:
        pool.shutdown(cancel_futures=True)


def examine_files(
    host: CommandHost, paths: Sequence[str], *, timeout: float = 60.0
) -> tuple[list[InstalledPlugin], list[Finding]]:
    """Execute plugin files, each in a process of its own; return what they offer and what is wrong with them."""
    entries: list[InstalledPlugin] = []
    findings: list[Finding] = []
    for path in paths:
        outcome = _run(host, Job(path=_import_path(), file=path), timeout)
        if isinstance(outcome, Report):
            entries += outcome.offered
            findings += [_of_file(path, one.code, one.reason, one.hint) for one in outcome.faults]
        else:
            findings.append(_of_file(path, "CORE-P126", outcome, "Correct it, or leave --plugin-file out."))
    return entries, findings


def _of_file(path: str, code: str, cause: str, remedy: str) -> Finding:
    return Finding("error", code, cause, remedy, dist=f"{FILE_PREFIX}{Path(path).stem}")


def _examine(host: CommandHost, entry: InstalledPlugin, file: str | None, timeout: float) -> tuple[list[Finding], bool]:
    """Return the findings, and whether they hold until the code of the plugin's distribution changes."""
    if entry.group not in host.plugins.kinds() and entry.group != KINDS_GROUP:
        cause = f"this core does not know the kind {entry.group}, so the plugin is never used"
        return [Finding.of(entry, "note", "CORE-P127", cause, f"Upgrade core, or uninstall {entry.dist}.")], False
    outcome = _run(host, Job(path=_import_path(), entry=entry, file=file), timeout)
    if isinstance(outcome, str):
        remedy = f"Import {entry.value.partition(':')[0]} by hand to see where; disable it until then."
        return [Finding.of(entry, "error", "CORE-P126", outcome, remedy)], False
    findings = list(_findings(entry, outcome))
    if entry.group != HOOKS_GROUP and file is None:
        findings += _manifest_findings(host, entry, outcome, timeout)
    return findings, file is None and not outcome.elsewhere


def _import_path() -> list[str]:
    """Return the child's import path. The working directory never gets on it."""
    return [folder for folder in sys.path if folder]


def _run(host: CommandHost, job: Job, timeout: float) -> Report | str:
    """Run the child and return its report, or how it ended without one."""
    command = [*host.in_process("core_plugin_author.doctor.child:main")]
    try:
        done = subprocess.run(
            command, input=job.model_dump_json().encode() + b"\n", capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"importing it took more than {timeout:g} seconds"
    try:
        return Report.model_validate_json(done.stdout)
    except ValidationError:
        last = " / ".join(done.stderr.decode(errors="replace").split("\n")[-_LAST_LINES - 1 :]).strip(" /")
        return f"importing it ended the process with status {done.returncode}{f': {last}' if last else ''}"


def _findings(entry: InstalledPlugin, report: Report) -> Iterator[Finding]:
    for fault in report.faults:
        yield _fault(entry, report, fault)
    for told in report.told:
        level: Level = "note" if told.level == "ok" else told.level
        yield Finding.of(entry, level, "CORE-P129", f"it says: {told.message.rstrip('.')}", told.hint)
    for text in report.deprecations:
        remedy = "Tell the plugin's authors; it works until the removal."
        yield Finding.of(entry, "note", "CORE-P124", f"deprecated: {text}", remedy)


def _fault(entry: InstalledPlugin, report: Report, fault: PluginFault) -> Finding:
    if library := _LIBRARY.search(fault.reason):
        remedy = f"Install the system package that has {library[1]}, or add its folder to LD_LIBRARY_PATH."
        return Finding.of(entry, "error", "CORE-P120", f"system library missing: {fault.reason}", remedy)
    if fault.code == "CORE-P106" and not report.descriptor:
        remedy = f"The group {entry.group} is core's; it is ignored. Uninstall {entry.dist} if it is not a plugin."
        return Finding.of(entry, "warning", "CORE-P106", f"foreign entry point: {fault.reason}", remedy)
    if fault.code == MODULE_ABSENT:  # a device that is not here does not need the plugin
        return Finding.of(entry, "note", fault.code, fault.reason, fault.hint)
    return Finding.of(entry, "error", fault.code, fault.reason, fault.hint or _remedy(entry, fault.code))


def _remedy(entry: InstalledPlugin, code: str) -> str:
    remedies = {
        "CORE-P103": f"Reinstall {entry.dist} with its dependencies; until then: core plugins disable {entry.dist}.",
        "CORE-P106": f"Make both names the same in {entry.dist}, or tell its authors.",
        "CORE-P107": "Upgrade the plugin or core; authors mark hooks of other versions with optionalhook=True.",
    }
    return remedies.get(code, f"Tell the authors of {entry.dist}.")


def _manifest_findings(host: CommandHost, entry: InstalledPlugin, report: Report, timeout: float) -> Iterator[Finding]:
    if report.heavy:
        cause = f"its manifest imports {', '.join(report.heavy)}, which every command then pays for"
        yield Finding.of(
            entry,
            "warning",
            "CORE-P123",
            cause,
            "Keep the descriptor apart from the implementation and the options, and import there.",
        )
    elif report.milliseconds > MANIFEST_MS and (took := _again(host, entry, report, timeout)) > MANIFEST_MS:
        cause = f"importing its manifest takes {took:.0f} ms; {MANIFEST_MS:.0f} ms are allowed"
        yield Finding.of(entry, "warning", "CORE-P122", cause, "Import in the manifest nothing but core.api.")


def _again(host: CommandHost, entry: InstalledPlugin, first: Report, timeout: float) -> float:
    """Measure once more: a busy machine must not make a plugin look slow."""
    second = _run(host, Job(path=_import_path(), entry=entry), timeout)
    return first.milliseconds if isinstance(second, str) else min(first.milliseconds, second.milliseconds)
