"""Plugin distributions made on the spot, and the kit over all that are here."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from core_testing.conformance import Level, run
from core_testing.conformance.table import checks_of

ROOT = Path(__file__).parents[2]
NUMBER = itertools.count()
KIT = (sys.executable, "-m", "pytest", "--core-plugin-conformance")
KIT_SECONDS = 3000
LONG = "any_split_gives_the_same_events or work_is_linear"
"""Checks of parsers that take half the kit's time."""
INTERPRETED = "triton"
"""Plugins whose kernels run in Triton's interpreter, where a check takes minutes."""

METADATA = "Metadata-Version: 2.4\nName: {dist}\nVersion: 1.0\nSummary: Broken on purpose\nLicense-Expression: MIT\n"


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tiny tensors gain nothing by threads, and lose much on a busy machine."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def kit_report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The report of the kit over every plugin and every example of this checkout, by the command that strangers run.

    Without the `LONG` checks: `plugins/tool_parsers/*/tests` make them of every family, and `long_kit_report` is those.
    Without the `INTERPRETED` plugins, of which `interpreted_kit_report` is.
    It takes minutes of one processor; the other worker of pytest-xdist goes on with other files meanwhile.
    """
    return _kit_report(tmp_path_factory.mktemp("kit"), f"not ({LONG} or {INTERPRETED})")


@pytest.fixture(scope="session")
def long_kit_report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """As `kit_report`, of the `LONG` checks alone."""
    return _kit_report(tmp_path_factory.mktemp("long"), LONG)


@pytest.fixture(scope="session")
def interpreted_kit_report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """As `kit_report`, of the `INTERPRETED` plugins alone."""
    return _kit_report(tmp_path_factory.mktemp("interpreted"), INTERPRETED)


def _kit_report(folder: Path, checks: str) -> dict:
    sources = [_install(file.parent, folder / "site") for file in ROOT.glob("examples/plugins/*/pyproject.toml")]
    path = os.pathsep.join(filter(None, [str(folder / "site"), *sources, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*KIT, "--core-conformance-report", "report.json", "-k", checks, "-p", "no:cacheprovider", "-q"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=KIT_SECONDS,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads((folder / "report.json").read_text())


def _install(project: Path, site: Path) -> str:
    """Write the metadata of an example into `site`; return the directory of its sources."""
    fields = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    info = site / f"{fields['name'].replace('-', '_')}-{fields['version']}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {fields['name']}", f"Version: {fields['version']}"]
    lines += [f"Summary: {fields['description']}", f"License-Expression: {fields['license']}"]
    lines += [f"Requires-Dist: {one}" for one in fields.get("dependencies", [])]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in fields.get("entry-points", {}).items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))
    return str(project / "src")


@dataclass(frozen=True)
class Made:
    """A distribution: its name, its import package, the directory it is in."""

    dist: str
    package: str
    site: Path

    def report(self, *areas: str, level: Level = Level.L1, checks: tuple[str, ...] = ()):
        """Run the checks of these areas (all of the kind's, if none is named) on its only plugin."""
        names = checks or tuple(check.name for area in areas for check in checks_of(area))
        return run(self.dist, level=level, checks=names).plugins[0]

    def failing(self, *areas: str, level: Level = Level.L1) -> dict[str, str]:
        """Return the checks that fail, with what they say."""
        return {one.check: one.message for one in self.report(*areas, level=level).failures}


@pytest.fixture
def make_plugin(tmp_path, monkeypatch) -> Iterator:
    """`make_plugin(group, modules, ...)` installs a distribution; `PKG` in sources is its package's name."""
    packages: list[str] = []

    def make(
        group: str,
        modules: dict[str, str],
        *,
        name: str = "broken",
        value: str = "PKG.manifest:SPEC",
        metadata: str = METADATA,
        files: tuple[str, ...] = (),
        package: str | None = None,
    ) -> Made:
        number = next(NUMBER)
        package = package or f"acme_broken_{number}"
        dist, site = f"acme-broken-{number}", tmp_path / f"site{number}"
        info = site / f"acme_broken_{number}-1.0.dist-info"
        info.mkdir(parents=True)
        for path, source in modules.items():
            target = site / package / f"{path}.py"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(source.replace("PKG", package))
        (site / package / "__init__.py").touch()
        (info / "METADATA").write_text(metadata.format(dist=dist))
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value.replace('PKG', package)}\n")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in (f"{package}/__init__.py", *files)))
        monkeypatch.syspath_prepend(str(site))
        packages.append(package)
        return Made(dist, package, site)

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        del sys.modules[name]


PARSER = """
from core.api import Text

class Parser:
    def __init__(self, ctx): pass
    def feed(self, text, token_ids=()): return [Text(text)] if text else []
    def finish(self): return []
"""


def parser_manifest(extra: str = "", **fields: object) -> str:
    """Return the manifest of a tool parser, `extra` code before the descriptor."""
    given = {"name": "broken", "impl": "PKG.parser:Parser", "api": 1, "summary": "s", **fields}
    arguments = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return f"from core.api import ToolParserSpec\n{extra}\nSPEC = ToolParserSpec({arguments})\n"


@pytest.fixture
def parser_source() -> str:
    """The source of a sound tool parser."""
    return PARSER


@pytest.fixture
def make_parser(make_plugin):
    """`make_parser(extra=..., parser=..., **fields)`: a sound tool parser, but for what is given."""

    def make(extra: str = "", *, parser: str = PARSER, modules: dict[str, str] | None = None, fields=None, **options):
        sources = {"manifest": parser_manifest(extra, **(fields or {})), "parser": parser, **(modules or {})}
        return make_plugin("core.tool_parsers", sources, **options)

    return make
