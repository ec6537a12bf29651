"""Selection: an explicit choice is a command; otherwise capability filters and a score decides.

Whatever happens, a `SelectionReport` tells every candidate's verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core.api.errors import CoreError, PluginError
from core.api.verdict import Verdict
from core.plugins.catalog import LEFT_OUT, Catalogue
from core.plugins.drivers import Candidate, LoadFailure, instantiate, load_descriptors, typed
from core.plugins.entry import Entry
from core.plugins.hooks import Hooks
from core.plugins.kinds import Kind, kind_of
from core.plugins.known import Table
from core.plugins.options import checked_options, given_options
from core.selection.report import Row, SelectionReport
from core.suggest import FEW, shortened

Check = Callable[[Candidate], Verdict]

NONE = "none"
"""Value of an option that means no plugin of a kind."""


def anything(_: Candidate) -> Verdict:
    """The check of a kind that has nothing to check."""
    return Verdict()


@dataclass(slots=True)
class Selector:
    """Chooses among the plugins of a catalogue.

    Attributes:
        preferences: The platform's score adjustments, `"<group>:<name>" -> points`.
        reports: One report per selection so far, the failed one included.
        options: What the user gives plugins, by their names.
        usable: Whether what plugins need has to be installed here; without, they are judged as if it were.
    """

    catalogue: Catalogue
    hooks: Hooks
    preferences: Mapping[str, int] = field(default_factory=dict)
    reports: list[SelectionReport] = field(default_factory=list)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    usable: bool = True

    def made(self, candidate: Candidate) -> Any:
        """Return an object of a kind that is made with nothing but its options.

        Raises:
            ConfigError: CORE-C111, the user gives options that it does not take.
            PluginError: As `instantiate`.
        """
        return instantiate(candidate, checked_options(candidate, given_options(candidate.entry, self.options)))

    def choose(
        self,
        kind: Kind,
        ask: str | None = None,
        *,
        check: Check = anything,
        subject: str = "",
        request: Mapping[str, Any] | None = None,
        none: Callable[[SelectionReport], CoreError] | None = None,
    ) -> Candidate:
        """Choose a plugin of `kind` and keep the report.

        Args:
            ask: The user's command: `name`, `name@distribution`, or several separated by commas, of which the first
                that is supported is taken. None or `auto` lets the score decide.
            check: Says whether a candidate can serve; a `PluginError` it raises marks the candidate as failed.
            subject: What the choice is for, in a few words.
            request: The same as data, for plugins that take part in the choice.
            none: Makes the error for the case that nothing can serve; default CORE-P203.

        Raises:
            CoreError: What was asked cannot be had, or nothing can serve.
        """
        ask = None if is_auto(ask) else ask
        report = SelectionReport(kind.group, subject, ask)
        self.reports.append(report)
        contest = self.assess(kind, check)
        try:
            winner = contest.command(ask, report) if ask else self._automatic(contest, request or {}, report, none)
        except CoreError as error:
            report.error = error
        else:
            report.chosen = winner
            contest.rows[winner.entry].state = "chosen"
        report.rows = contest.listing()
        return report.require()

    def assess(self, kind: Kind, check: Check = anything) -> Contest:
        """Return every candidate of `kind` with its verdict, without choosing."""
        candidates, failures = load_descriptors(self.catalogue.entries(kind.group), usable=self.usable)
        contest = Contest(kind, self.catalogue)
        for failure in failures:
            contest.fail(failure)
        for entry in self.catalogue.left_out(kind.group):
            contest.rows[entry] = Row.of(entry, "rejected", LEFT_OUT)
        for candidate in candidates:
            contest.judge(candidate, check, self.score(candidate))
        return contest

    def score(self, candidate: Candidate) -> int:
        """Return the rank of a candidate: band, then the platform's preference, then the plugin's own priority."""
        descriptor = candidate.descriptor
        preference = self.preferences.get(f"{candidate.entry.group}:{candidate.entry.name}", 0)
        return descriptor.band * 1000 + preference * 10 + descriptor.priority

    def _automatic(
        self,
        contest: Contest,
        request: Mapping[str, Any],
        report: SelectionReport,
        none: Callable[[SelectionReport], CoreError] | None,
    ) -> Candidate:
        ranking = contest.ranking()
        if not ranking:
            report.rows = contest.listing()
            raise (none or nothing_serves)(report)
        report.how = "chosen by score" if len(ranking) > 1 else "the only one that can serve"
        winner = ranking[0]
        answer = self.hooks.select(contest.kind.group, [one.entry.name for one in ranking], request)
        if answer is not None:
            name, author = answer
            report.how = f"chosen by {author.name} ({author.owner})"
            winner = next(one for one in ranking if one.entry.name == name)
        elif len(ranking) > 1 and contest.score(ranking[0]) == contest.score(ranking[1]):
            report.notes.append(f"'{ranking[0].entry.name}' and '{ranking[1].entry.name}' have the same score")
        self.catalogue.find(contest.kind.group, winner.entry.name)  # two owners of the winning name: the user decides
        return winner


@dataclass(slots=True)
class Contest:
    """The candidates of one selection and what is known of each.

    Attributes:
        candidates: All whose descriptors could be loaded; `usable` are those that no reason speaks against.
    """

    kind: Kind
    catalogue: Catalogue
    rows: dict[Entry, Row] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    usable: list[Candidate] = field(default_factory=list)
    failures: dict[Entry, CoreError] = field(default_factory=dict)

    def fail(self, failure: LoadFailure) -> None:
        """Record an entry that gave no plugin."""
        self.rows[failure.entry] = Row.of(failure.entry, failure.state, failure.reason, failure.code)
        asked_by = f"{self.kind.flag} {failure.entry.name}" if self.kind.flag else ""
        self.failures[failure.entry] = failure.error(asked_by)

    def judge(self, candidate: Candidate, check: Check, score: int) -> None:
        """Record what `check` says of a candidate."""
        entry = candidate.entry
        self.candidates.append(candidate)
        row = self.rows[entry] = Row.of(entry, "ok")
        try:
            verdict = typed(entry, "its check", check(candidate), Verdict)
        except CoreError as error:
            row.fail(error)
            self.failures[entry] = error
            return
        if verdict.ok:
            row.score = score
            self.usable.append(candidate)
        else:
            row.state, row.reasons = "rejected", verdict.reasons

    def reject(self, candidate: Candidate, reason: str) -> None:
        """Record a further reason against a candidate, which is seen only beside the others."""
        row = self.rows[candidate.entry]
        self.usable = [one for one in self.usable if one != candidate]
        if not row.code:
            row.state, row.score, row.reasons = "rejected", None, (*row.reasons, reason)

    def score(self, candidate: Candidate) -> int:
        """Return a usable candidate's score."""
        return self.rows[candidate.entry].score or 0

    def listing(self) -> list[Row]:
        """Return the rows: the chosen one, then by score, then by name."""
        return sorted(
            self.rows.values(), key=lambda row: (row.state != "chosen", -(row.score or 0), row.name, row.dist)
        )

    def ranking(self) -> list[Candidate]:
        """Return who may be chosen automatically, best first; equal scores: newer version, then distribution name."""
        for candidate in self.usable:
            if candidate.descriptor.maturity == "experimental":
                row = self.rows[candidate.entry]
                row.state, row.reasons = "rejected", ("experimental: only used when asked for",)
        ranked = [one for one in self.usable if self.rows[one.entry].state == "ok"]
        ranked.sort(key=lambda one: one.entry.dist)
        if len({self.score(one) for one in ranked}) < len(ranked):
            ranked.sort(key=lambda one: _version(one.entry.version), reverse=True)
        return sorted(ranked, key=self.score, reverse=True)

    def command(self, ask: str, report: SelectionReport) -> Candidate:
        """Return what the user asked for, or raise why it cannot be had. Never anything else."""
        asks = names_in(ask)
        report.how = "as asked" if len(asks) == 1 else f"first of {', '.join(asks)} that can serve"
        return next(self.asked(asks))

    def asked(self, asks: Sequence[str]) -> Iterator[Candidate]:
        """Yield those of the plugins asked for that can serve, in order.

        Raises:
            CoreError: None of them can, with the reasons of every candidate; or CORE-P102, a name is not clear.
        """
        if not asks:
            raise PluginError("CORE-P101", f"{self.kind.flag} names no {self.kind.label}.")
        problems: list[CoreError] = []
        for text in asks:
            try:
                yield self._asked(text)
            except CoreError as error:
                if error.code == "CORE-P102":
                    raise  # a name that two distributions claim is for the user to settle, also inside a list
                problems.append(error)
        if len(problems) == len(asks):
            raise self._refusal(asks, problems)

    def _refusal(self, asks: Sequence[str], problems: Sequence[CoreError]) -> CoreError:
        """Return why nothing of what was asked can be had, and what is known of the other candidates."""
        others = self._others({text.partition("@")[0] for text in asks})
        if len(problems) == 1:
            hint = " ".join(text for text in (problems[0].hint, others) if text)
            return type(problems[0])(problems[0].code, problems[0].message, hint=hint)
        hints = [problem.hint for problem in problems if problem.code == "CORE-P101"]
        reasons = " ".join(problem.message for problem in problems)
        text = f"none of {', '.join(asks)} can serve as {self.kind.label}: {reasons}"
        return PluginError("CORE-P201", text, hint=" ".join(one for one in (*hints, others) if one))

    def _asked(self, text: str) -> Candidate:
        entry = self.catalogue.find(self.kind.group, text)
        if entry in self.failures:
            raise self.failures[entry]
        for candidate in self.usable:
            if candidate.entry == entry:
                return candidate
        reasons = "; ".join(self.rows[entry].reasons)
        raise PluginError(
            "CORE-P201",
            f"{self.kind.label} '{entry.name}' ({entry.owner}) cannot serve here: {reasons}.",
        )

    def _others(self, asked: Collection[str]) -> str:
        """Return what is known of everybody but those asked for: who can serve, and why the rest cannot."""
        names = list(dict.fromkeys(one.entry.name for one in self.ranking()))
        rest = [row for row in self.listing() if row.reasons and row.name not in asked]
        unfit = [row for row in rest if row.state != "absent"]
        said = [f"Supported alternatives here: {shortened(names)}."] if names else []
        if names and self.kind.needed:
            said.append(f"Leave {self.kind.flag} out to let core choose (it would take {names[0]}).")
        if not names and self.rows:
            said.append(f"No other installed {self.kind.label} can serve here either.")
        if unfit:
            said.append(f"Not supported: {reasons_of(unfit)}.")
        return " ".join(said)


def nothing_serves(report: SelectionReport) -> CoreError:
    """Return the error for a kind of which no candidate can serve, with every reason."""
    label = kind_of(report.group).label
    subject = f" for {report.subject}" if report.subject else ""
    if not report.rows:
        known = [row.dist for row in Table.read().providing(report.group)]
        hint = f"`pip install` one of: {', '.join(known)}." if known else "Install a plugin that provides one."
        return PluginError("CORE-P203", f"no {label} is installed.", hint=hint)
    return PluginError("CORE-P203", f"no installed {label} can serve{subject}. {reasons_of(report.rows)}")


def reasons_of(rows: Sequence[Row]) -> str:
    """Return every candidate's reasons in one line; of many candidates, those with the same reasons together."""
    if len(rows) <= FEW:
        return " · ".join(f"{row.name} ({row.dist} {row.version}): {'; '.join(row.reasons)}" for row in rows)
    together: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        together.setdefault(row.reasons, []).append(row.name)
    return " · ".join(f"{shortened(names)}: {'; '.join(reasons)}" for reasons, names in together.items())


def is_auto(ask: str | None) -> bool:
    """Say whether the user leaves a choice to core."""
    return ask in (None, "", "auto")


def names_in(ask: str) -> list[str]:
    """Return the names of a list that a user wrote, `a, b@dist`."""
    return [text.strip() for text in ask.split(",") if text.strip()]


def _version(text: str) -> Any:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")
