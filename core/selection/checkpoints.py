"""From a model reference to a readable checkpoint: who claims it, who reads it, who implements it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from core.api.descriptors import ModelSourceSpec, ModelSpec, WeightLoaderSpec
from core.api.errors import CheckpointError, CoreError, PluginError
from core.api.shapes import ModelShape
from core.api.sources import Access, ReachesOut
from core.api.verdict import Verdict
from core.api.weights import CheckpointInfo, CheckpointReader, ModelFiles, ModelSource
from core.plugins.drivers import Candidate, guarded, load_impl, typed
from core.plugins.entry import Entry
from core.plugins.kinds import LOADER, MODEL, SOURCE
from core.plugins.known import Table
from core.selection.report import SelectionReport
from core.selection.select import Contest, Selector, is_auto, names_in
from core.selection.weight_sizes import require_fitting
from core.suggest import closest, nearest, shortened

ALONE = Access()
"""Sources do as they would by themselves."""

NEAR = 3
"""Architectures that an error names beside one that nobody implements."""


def find_files(
    selector: Selector,
    ask: str | None,
    reference: str | None,
    revision: str | None,
    access: Access = ALONE,
) -> tuple[Candidate, ModelFiles]:
    """Ask the model sources for `reference`; the first that claims it is taken.

    Args:
        ask: The sources to ask, in order; None or `auto` asks all of them, aliases first, then by score.
        access: How sources may reach what is not on this machine.

    Raises:
        CheckpointError: CORE-M101 when nobody claims it; or what the source that claims it raises.
        PluginError: None of the sources that were asked for can be had.
    """
    ask = None if is_auto(ask) else ask
    subject = repr(reference) if reference else "no model named"
    report = SelectionReport(SOURCE.group, subject, ask, how="first to claim it")
    selector.reports.append(report)
    contest = selector.assess(SOURCE)
    report.rows = contest.listing()
    try:
        order = _in_order(contest, reference) if ask is None else list(contest.asked(names_in(ask)))
        found = _first_claim(selector, contest, order, reference, revision, access)
    except CoreError as error:
        report.error = error
        raise
    report.chosen = found[0]
    contest.rows[report.chosen.entry].state = "chosen"
    report.rows = contest.listing()
    return found


def opened(selector: Selector, candidate: Candidate, access: Access) -> ModelSource:
    """Return a model source that knows how it may reach its models. Raises `PluginError`, `ConfigError`."""
    source: ModelSource = selector.made(candidate)
    if isinstance(source, ReachesOut):
        guarded(candidate.entry, "use()", source.use, access)
    return source


def _first_claim(
    selector: Selector,
    contest: Contest,
    order: list[Candidate],
    reference: str | None,
    revision: str | None,
    access: Access,
) -> tuple[Candidate, ModelFiles]:
    asked = []
    for candidate in order:
        entry, row = candidate.entry, contest.rows[candidate.entry]
        try:
            source = opened(selector, candidate, access)
        except PluginError as error:
            row.fail(error)
            continue
        try:
            files = guarded(entry, "resolve()", source.resolve, reference, revision=revision)
            if files is not None:
                _require_clear(contest, candidate, order)
                return candidate, typed(entry, "resolve()", files, ModelFiles)
        except CoreError as error:
            row.fail(error)  # it is this source's business, but it cannot deliver: nobody else is asked
            raise
        asked.append(entry.name)
        row.state, row.reasons, row.score = "rejected", ("does not claim it",), None
    raise _unclaimed(contest, reference, asked)


def _require_clear(contest: Contest, chosen: Candidate, order: list[Candidate]) -> None:
    """Refuse a name that two distributions claim, unless the user said which of them is meant."""
    if sum(one.entry.name == chosen.entry.name for one in order) > 1:
        contest.catalogue.find(SOURCE.group, chosen.entry.name)


def _in_order(contest: Contest, reference: str | None) -> list[Candidate]:
    """Return who may be asked for `reference`, in order."""
    ranking = contest.ranking()
    if reference is None:
        return [one for one in ranking if one.spec(ModelSourceSpec).default]
    # A stable sort: among those with the alias, and among the rest, the score decides.
    return sorted(ranking, key=lambda one: reference not in one.spec(ModelSourceSpec).aliases)


def _unclaimed(contest: Contest, reference: str | None, asked: list[str]) -> CheckpointError:
    rows = contest.rows.values()
    sources = f"Sources asked: {', '.join(asked)}." if asked else "No model source could be asked."
    unused = [row for row in rows if row.code or (row.state == "rejected" and row.name not in asked)]
    broken = [f"{row.name} ({row.dist} {row.version}): {'; '.join(row.reasons)}" for row in unused]
    if broken:
        sources += f" Not usable: {' · '.join(broken)}."
    if reference is None:
        return CheckpointError("CORE-M101", f"no model was named and none is offered. {sources}", hint="Name one.")
    known = contest.catalogue.advice(Table.read().named(SOURCE.group, reference), reference)
    guess = nearest(reference, _aliases(contest))
    rest = "Give an existing file or directory, or install a source that knows this name."
    hint = known or f"{guess} {rest}".strip()
    return CheckpointError("CORE-M101", f"no model source knows '{reference}'. {sources}", hint=hint)


def _aliases(contest: Contest) -> list[str]:
    """Return the references that a source answers without being asked further."""
    return [alias for one in contest.usable for alias in one.spec(ModelSourceSpec).aliases]


def find_reader(selector: Selector, ask: str | None, files: ModelFiles) -> tuple[Candidate, CheckpointReader]:
    """Choose the weight loader by file names, then by what the readers recognise.

    Raises:
        CheckpointError: CORE-M102 when no loader reads what is there.
        PluginError: The loader that was asked for cannot be had.
    """
    path = Path(files.path)
    names = _file_names(path)
    readers: dict[Entry, CheckpointReader] = {}

    def check(candidate: Candidate) -> Verdict:
        spec = candidate.spec(WeightLoaderSpec)
        patterns = spec.patterns
        if spec.invents and is_auto(ask):
            return Verdict.of(f"used only as {LOADER.flag} {spec.name}: it makes weights up")
        if not any(fnmatchcase(name, pattern) for name in names for pattern in patterns):
            return Verdict.of(f"no file named {' or '.join(patterns)}")
        reader = readers[candidate.entry] = selector.made(candidate)
        known = guarded(candidate.entry, "recognises()", reader.recognises, path)
        return Verdict.of(None if known else f"does not recognise {path.name}")

    def none(report: SelectionReport) -> CheckpointError:
        formats = " · ".join(f"{row.name}: {'; '.join(row.reasons)}" for row in report.rows) or "none is installed"
        there = f" It holds {shortened(names)}." if path.is_dir() else ""
        hint = Table.read().format_of(names) or "Install a plugin that reads this format, or give another file."
        return CheckpointError("CORE-M102", f"no weight loader reads {files.path}: {formats}.{there}", hint=hint)

    chosen = selector.choose(LOADER, ask, check=check, subject=path.name, none=none)
    return chosen, readers[chosen.entry]


def _file_names(path: Path) -> list[str]:
    if path.is_dir():
        return sorted(entry.name for entry in path.iterdir() if entry.is_file())
    if path.is_file():
        return [path.name]
    raise CheckpointError("CORE-M102", f"no weight loader can read {path}: there is no such file or directory.")


def inspect(selector: Selector, loader: Candidate, reader: CheckpointReader, files: ModelFiles) -> CheckpointInfo:
    """Read the checkpoint's facts. Raises `CheckpointError` from the reader, CORE-P108 for anything else it raises."""
    try:
        info = guarded(loader.entry, "inspect()", reader.inspect, Path(files.path))
    except CheckpointError as error:
        if not error.architecture:
            raise
        advice = _in_other_files(selector, error.architecture)
        raise CheckpointError(error.code, error.message, hint=f"{error.hint} {advice}".strip()) from error
    info = typed(loader.entry, "inspect()", info, CheckpointInfo)
    return info.model_copy(update={"generation_config": {**files.generation_config, **info.generation_config}})


def _kin(architecture: str, known: Iterable[str]) -> list[str]:
    """Return the architectures whose names are closest, one of each family: by what stands before `For` or `Model`."""
    families: dict[str, list[str]] = {}
    for name in known:
        families.setdefault(_family(name), []).append(name)
    close = closest(_family(architecture), families, NEAR)
    return [(closest(architecture, families[family], 1) or families[family])[0] for family in close]


def _family(architecture: str) -> str:
    return re.split("For[A-Z]|Model$|LMHead", architecture)[0]


def find_model(selector: Selector, ask: str | None, checkpoint: CheckpointInfo) -> tuple[Candidate, ModelShape]:
    """Choose the model implementation by architecture and by what it says of the configuration.

    Raises:
        CheckpointError: CORE-M103 naming the architecture and what is installed; or what those who implement it find
            wrong with the configuration.
    """
    architecture = checkpoint.architecture
    shapes: dict[Entry, ModelShape] = {}
    architectures: dict[str, Entry] = {}
    refusals: list[CoreError] = []
    last: list[CoreError] = []
    families = _families(selector, architecture)
    asked = [] if is_auto(ask) else [name.partition("@")[0] for name in names_in(str(ask))]

    def check(candidate: Candidate) -> Verdict:
        spec = candidate.spec(ModelSpec)
        if not spec.fallback:
            architectures.update(dict.fromkeys(spec.architectures, candidate.entry))
        if not spec.takes(architecture):
            return Verdict.of(f"implements {shortened(spec.architectures)}")
        if spec.fallback and families and spec.name not in asked:
            return Verdict.of(f"last resort, only used when asked for: {' and '.join(families)} names {architecture}")
        try:
            shapes[candidate.entry] = _shape(candidate, checkpoint)
        except CoreError as error:
            (last if spec.fallback else refusals).append(error)
            if not isinstance(error, CheckpointError):
                raise
            return Verdict.of(f"{error.message.rstrip('.')} ({error.code})")
        return Verdict()

    def none(report: SelectionReport) -> CoreError:
        if refusals:
            return refusals[0]
        where = f"'architectures' of {checkpoint.config_file or checkpoint.path}"
        text = f"no plugin implements architecture {architecture} ({where})."
        if not report.rows:
            text += " No model implementation is installed."
        elif close := _kin(architecture, architectures):
            near = [f"{name} ({architectures[name].name}, {architectures[name].owner})" for name in close]
            text += f" The nearest that are implemented: {', '.join(near)}."
        text += "".join(f" {error.message}" for error in last)
        known = selector.catalogue.advice(Table.read().implementing(architecture), architecture)
        hint = known or "Install a model plugin that implements it; `core plugins list --kind models` shows yours."
        return CheckpointError("CORE-M103", text, hint=hint)

    request = {"architecture": architecture, "quantization": checkpoint.quantization}
    chosen = selector.choose(MODEL, ask, check=check, subject=architecture, request=request, none=none)
    shape = shapes[chosen.entry]
    notes, cost = selector.reports[-1].notes, chosen.spec(ModelSpec).fallback
    notes += [f"rotary scaling: {rope.described}" for rope in shape.ropes if rope.scaling]
    if cost:
        notes.append(f"'{chosen.entry.name}' is a last resort: {cost}")
    return chosen, shape


def _families(selector: Selector, architecture: str) -> list[str]:
    """Return the names of the installed families that name an architecture, whatever they say of a configuration."""
    specs = [candidate.spec(ModelSpec) for candidate in selector.assess(MODEL).candidates]
    return [spec.name for spec in specs if not spec.fallback and spec.takes(architecture)]


def _in_other_files(selector: Selector, architecture: str) -> str:
    """Return what can be done about a model that the reader of its files cannot describe."""
    for candidate in selector.assess(MODEL).ranking():
        spec = candidate.spec(ModelSpec)
        if spec.takes(architecture) and not spec.fallback:
            entry = candidate.entry
            return f"{entry.name} ({entry.owner}) implements {architecture}: give its safetensors files."
    known = selector.catalogue.advice(Table.read().implementing(architecture), architecture)
    return known or f"No installed plugin implements {architecture} from files of another format either."


def _shape(candidate: Candidate, checkpoint: CheckpointInfo) -> ModelShape:
    """Return what an implementation says of a configuration. Raises `CoreError` for one that nobody can compute."""
    path, entry = candidate.spec(ModelSpec).shape, candidate.entry
    try:
        shape = typed(entry, path, guarded(entry, path, load_impl(path, entry), dict(checkpoint.config)), ModelShape)
        for rope in shape.ropes:
            rope.require_known()
    except CheckpointError as error:  # a model plugin reads keys, and does not know of which file
        told = error.within(checkpoint.config_file or checkpoint.path)
        if told is error:
            raise
        raise told from error
    require_fitting(checkpoint, shape)
    return shape
