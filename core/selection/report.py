"""Selection reports: every candidate, its verdict, its score, and how the winner was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from core.api.errors import CoreError, PluginError
from core.plugins.drivers import Candidate
from core.plugins.entry import Entry
from core.plugins.kinds import kind_of

State = Literal["chosen", "ok", "rejected", "absent", "failed"]
MARKS: dict[State, str] = {"chosen": "✓", "ok": "·", "rejected": "✗", "absent": "-", "failed": "!"}


@dataclass(slots=True)
class Row:
    """One candidate.

    Attributes:
        state: `absent` is one that needs a library which is not here, as those of other devices are not.
        reasons: Everything that speaks against it; for a failed or absent one the cause.
        score: Rank in automatic selection; None for a candidate that cannot be used.
        code: Error code of a failed or absent candidate.
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

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return mark, plugin, distribution, score, and what speaks against it."""
        why = "; ".join(self.reasons) + (f" ({self.code})" if self.code else "")
        score = "-" if self.score is None else str(self.score)
        return MARKS[self.state], self.name, f"{self.dist} {self.version}", score, why

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

    @property
    def title(self) -> str:
        """Subject of the selection: the kind, and what it is for."""
        return f"{kind_of(self.group).label}{f' ({self.subject})' if self.subject else ''}"

    def cells(self) -> list[tuple[str, str, str, str, str]]:
        """Return a line for each candidate: mark, plugin, distribution, score, and what speaks against it."""
        return [row.cells() for row in self.rows]

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
