"""`pytest --core-plugin-conformance`: one test item per installed plugin and check.

Every pytest run of every environment with core imports this module: it must stay as cheap as its few lines. The kit is
imported when its option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from core_testing.conformance.kit import Job
    from core_testing.conformance.outcome import Level
    from core_testing.conformance.report import Report
    from core_testing.conformance.subject import Shared, Subject

_OPTION = "core_plugin_conformance"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the kit's options."""
    group = parser.getgroup("core-conformance", "conformance kit for core plugins")
    group.addoption(
        "--core-plugin-conformance",
        dest=_OPTION,
        nargs="?",
        const="",
        default=None,
        metavar="DIST|GROUP:NAME|NAME",
        help="Check plugins instead of running tests; without a value every installed plugin.",
    )
    group.addoption(
        "--core-conformance-level",
        choices=("L0", "L1", "L2", "L3"),
        default="L2",
        help="Highest level to check. L0: installs, L1: correct on the CPU, L2: correct on its device, L3: faster "
        "than the reference. Default: L2; what lacks its device is reported as not run.",
    )
    group.addoption(
        "--core-conformance-report", default=None, metavar="FILE", help="Write levels and outcomes as JSON."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take over collection and reporting when the kit is asked for."""
    if config.getoption(_OPTION) is not None:
        config.addinivalue_line("markers", "gpu: needs an accelerator")
        config.pluginmanager.register(ConformanceSession(config), "core-conformance-session")


class ConformanceSession:
    """The hooks of a run that checks plugins."""

    def __init__(self, config: pytest.Config) -> None:
        from core_testing.conformance.report import Report
        from core_testing.conformance.subject import Shared

        self._config = config
        self._shared: Shared = Shared()
        self.report: Report = Report()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        """Collect the checks, and nothing else."""
        items = [item for one in self._collectors(session) for item in one.collect()]
        hook = self._config.hook
        result: Any = list(items)
        hook.pytest_collectreport(report=pytest.CollectReport(session.nodeid, "passed", None, result))
        session.items = list(items)
        hook.pytest_collection_modifyitems(session=session, config=self._config, items=session.items)
        session.testscollected = len(session.items)
        hook.pytest_collection_finish(session=session)
        return True

    def pytest_sessionfinish(self) -> None:
        """Write the report and remove what the checks left."""
        from core.api.errors import CoreError

        self._shared.close()
        path = self._config.getoption("core_conformance_report")
        if path is None:
            return
        try:
            self.report.write(path)
        except CoreError as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print a line per plugin, what was not run, and how long the areas took."""
        if self.report.plugins:
            terminalreporter.section("core plugin conformance")
            for line in self.report.summary():
                terminalreporter.line(line)
            spent = ", ".join(f"{area} {seconds:.1f}" for area, seconds in self.report.seconds().items())
            terminalreporter.line(f"seconds by area: {spent}")

    def _collectors(self, session: pytest.Session) -> Iterator[PluginCollector]:
        from core.api.errors import CoreError
        from core_testing.conformance.kit import subjects
        from core_testing.conformance.outcome import Level

        try:
            found = subjects(self._config.getoption(_OPTION), self._shared)
        except CoreError as error:
            raise pytest.UsageError(str(error)) from error
        level = Level[self._config.getoption("core_conformance_level")]
        for subject in found:
            yield PluginCollector.of(session, subject, level, self.report)


class PluginCollector(pytest.Collector):
    """One plugin; its node id is `group:name`."""

    subject: Subject
    level: Level
    report: Report

    @classmethod
    def of(cls, session: pytest.Session, subject: Subject, level: Level, report: Report) -> PluginCollector:
        """Return the collector of a plugin."""
        made: PluginCollector = cls.from_parent(session, name=subject.title, nodeid=subject.title)
        made.subject, made.level, made.report = subject, level, report
        return made

    def collect(self) -> Iterator[CheckItem]:
        """Yield an item per check and device."""
        from core_testing.conformance.kit import jobs

        for job in jobs(self.subject, self.level):
            yield CheckItem.of(self, job)


class CheckItem(pytest.Item):
    """One check of one plugin."""

    job: Job
    report: Report

    @classmethod
    def of(cls, parent: PluginCollector, job: Job) -> CheckItem:
        """Return the item of a job."""
        made: CheckItem = cls.from_parent(parent, name=job.name)
        made.job, made.report = job, parent.report
        if "@" in job.name:
            made.add_marker(pytest.mark.gpu)
        return made

    def runtest(self) -> None:
        """Run the check and keep its outcome."""
        from core_testing.conformance.outcome import Failed

        outcome = self.job.run()
        self.report.of(self.job.subject.entry).outcomes.append(outcome)
        if outcome.status == "failed":
            raise Failed(outcome.message)
        if outcome.status != "passed":
            pytest.skip(f"{outcome.status}: {outcome.message}" if outcome.status == "unavailable" else outcome.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Return what the check found, without the kit's own traceback."""
        entry = self.job.subject.entry
        return f"{entry.group}:{entry.name} ({entry.owner})\n{self.job.check.summary}\n\n{excinfo.value}"

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the plugin in the place of a file, so that a check is listed under its node id alone."""
        return self.config.rootpath / self.job.subject.title, None, self.name
