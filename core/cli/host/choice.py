"""Choices of a start, for commands of plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core.api.choices import ConsideredPlugin, PluginSelection
from core.api.errors import CoreError
from core.api.given_options import GivenOptions
from core.api.installed import InstalledPlugin
from core.api.patches import Problem
from core.cli.host.options import loaded_of
from core.plugins.lock import lock_of
from core.selection.report import SelectionReport
from core.selection.resolver import Resolution, Resolver


@dataclass(frozen=True)
class Choice:
    """Choices of a start; `StartChoice`.

    Attributes:
        reference: The model that was asked for; empty: the default model.
        resolution: What was decided; None after an error.
    """

    reference: str
    selections: tuple[PluginSelection, ...]
    warnings: tuple[Problem, ...]
    resolution: Resolution | None = None
    error: CoreError | None = None

    @property
    def plugins(self) -> tuple[InstalledPlugin, ...]:
        """The plugins that take part, in order."""
        if self.resolution is None:
            return ()
        plan = self.resolution.config.plan
        return tuple(
            InstalledPlugin(one.group, one.name, one.dist, one.version, one.value)
            for one in (*plan.drivers, *plan.hooks)
        )

    @property
    def model(self) -> str:
        """Name of the model."""
        return self.resolution.config.files.name if self.resolution else ""

    @property
    def architecture(self) -> str:
        """Its architecture."""
        return self.resolution.config.checkpoint.architecture if self.resolution else ""

    @property
    def dtype(self) -> str:
        """Compute dtype."""
        return self.resolution.config.dtype if self.resolution else ""

    @property
    def digest(self) -> str:
        """SHA-256 of the plan."""
        return self.resolution.config.plan.digest if self.resolution else ""

    @property
    def changes(self) -> tuple[str, ...]:
        """Changes of the options by hook modules."""
        return tuple(map(str, self.resolution.patches)) if self.resolution else ()

    def lock(self) -> dict[str, Any]:
        """Return what a lock file holds of it."""
        if self.error is not None:
            raise self.error
        assert self.resolution is not None
        return lock_of(self.resolution.config.plan, self.reference).model_dump(mode="json")


def chosen(options: GivenOptions) -> Choice:
    """Choose as a start with these options would."""
    given = loaded_of(options).options
    resolver = Resolver(given)
    resolution, error = None, None
    try:
        resolution = resolver.run()
    except CoreError as failure:
        error = failure
    selections = tuple(_selection(report) for report in resolver.reports)
    return Choice(given.model.model or "", selections, tuple(resolver.warnings), resolution, error)


def _selection(report: SelectionReport) -> PluginSelection:
    considered = tuple(
        ConsideredPlugin(row.name, row.dist, row.version, row.state, row.score, row.reasons, row.code)
        for row in report.rows
    )
    return PluginSelection(
        report.group, report.subject, report.asked, report.how, considered, tuple(report.notes), report.error
    )
