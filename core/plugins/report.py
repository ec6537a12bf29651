"""Selection reports: every candidate, its verdict, its score, and how the winner was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from core.api.errors import CoreError, PluginError
from core.plugins.catalog import Entry
from core.plugins.drivers import Candidate
from core.plugins.kinds import kind_of

if TYPE_CHECKING:
    from rich.table import Table

State = Literal["chosen", "ok", "rejected", "failed"]
MARKS: dict[State, str] = {"chosen": "✓", "ok": "·", "rejected": "✗", "failed": "!"}


@dataclass(slots=True)
class Row:
    """One candidate.

    Attributes:
        reasons: Everything that speaks against it; for a failed one the cause.
        score: Rank in automatic selection; None for a candidate that cannot be used.
        code: Error code of a failed candidate.
    """

    name: str
    dist: str
    version: str
    state: State
    score: int | None = None
    reasons: tuple[str, ...] = ()
    code: str = ""

    @staticmethod
    def of(entry: Entry, state: State, reason: str = "", code: str = "") -> Row:
        """Return the row of an entry."""
        return Row(entry.name, entry.dist, entry.version, state, None, (reason,) if reason else (), code)

    def fail(self, error: CoreError) -> None:
        """Record that the candidate raised `error` when it was tried."""
        self.state, self.score, self.reasons, self.code = "failed", None, (error.message.rstrip("."),), error.code

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "name": self.name,
            "distribution": self.dist,
            "version": self.version,
            "state": self.state,
            "score": self.score,
            "reasons": list(self.reasons),
            "code": self.code,
        }


@dataclass(slots=True)
class SelectionReport:
    """How one plugin (or none) came to be chosen.

    Attributes:
        group: The kind that was chosen among.
        subject: What it was chosen for ("head_dim 64, bfloat16"); empty if there is nothing to say.
        asked: What the user asked for; None when core chose.
        how: How the winner was found, as a phrase.
        chosen: The winner, or None.
        error: Why there is no winner.
    """

    group: str
    subject: str = ""
    asked: str | None = None
    how: str = ""
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    chosen: Candidate | None = None
    error: CoreError | None = None

    def require(self) -> Candidate:
        """Return the winner, or raise why there is none."""
        if self.error is not None:
            raise self.error
        if self.chosen is None:
            raise PluginError("CORE-P203", f"no {kind_of(self.group).label} was chosen.")
        return self.chosen

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "group": self.group,
            "kind": kind_of(self.group).label,
            "subject": self.subject,
            "asked": self.asked,
            "how": self.how,
            "chosen": self.chosen.entry.name if self.chosen else None,
            "candidates": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
            "error": self.error.to_dict() if self.error else None,
        }


def render(reports: Sequence[SelectionReport]) -> Table:
    """Return one rich table of all reports, a section for each."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "plugin", "distribution", "score", "why", box=None, pad_edge=False)
    for report in reports:
        title = f"{kind_of(report.group).label}{f' ({report.subject})' if report.subject else ''}"
        table.add_row("", f"[bold]{escape(title)}[/bold]", "", "", escape(report.how))
        for row in report.rows:
            why = "; ".join(row.reasons) + (f" ({row.code})" if row.code else "")
            score = "-" if row.score is None else str(row.score)
            table.add_row(MARKS[row.state], escape(row.name), escape(f"{row.dist} {row.version}"), score, escape(why))
        for note in report.notes:
            table.add_row("", "", "", "", escape(note))
        table.add_section()
    return table
