"""The pytest plugin: options, node ids, levels, report; and that it costs others nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from core.api.descriptors import DESCRIPTORS
from core.api.errors import ConfigError
from core.plugins.catalog import Catalogue
from core.plugins.entry import Entry
from core.plugins.kinds import HOOKS_GROUP, KINDS_GROUP
from core_testing.conformance import Level, Outcome, PluginReport, Report, run
from core_testing.conformance.kit import jobs, subjects
from core_testing.conformance.subject import Shared
from core_testing.conformance.table import AREAS, EVERY, checks_for, checks_of

ROOT = Path(__file__).parents[2]


def pytest_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.fixture
def ordinary(tmp_path):
    """A directory with a test of its own."""
    (tmp_path / "test_mine.py").write_text("def test_mine(): assert True\n")
    return tmp_path


@pytest.mark.covers("PRAC-01")
def test_checks_are_items_with_readable_ids_and_ordinary_tests_are_left_out(ordinary):
    done = pytest_run(
        ordinary, "--core-plugin-conformance=core.schedulers:fcfs", "-v", "--core-conformance-report=r.json"
    )
    assert done.returncode == 0, done.stdout
    assert "\ncore.schedulers:fcfs::victim_is_a_valid_index PASSED" in done.stdout
    assert "test_mine" not in done.stdout
    assert re.search(
        r"^L1  core\.schedulers:fcfs  \(core-plugin-schedulers .*\)  \d+ passed, \d+ skipped$", done.stdout, re.M
    )
    (plugin,) = json.loads((ordinary / "r.json").read_text())["plugins"]
    assert (plugin["level"], plugin["distribution"], plugin["not_run"]) == ("L1", "core-plugin-schedulers", [])
    assert {"check", "area", "level", "status", "message", "seconds"} <= plugin["checks"][0].keys()
    assert re.search(r"^seconds by area: .*\bschedulers \d+\.\d", done.stdout, re.M)


def test_without_the_option_tests_run_as_ever(ordinary):
    done = pytest_run(ordinary, "-v")
    assert "test_mine PASSED" in done.stdout and "conformance" not in done.stdout


def test_checks_can_be_chosen_like_tests(ordinary):
    done = pytest_run(
        ordinary, "--core-plugin-conformance=hermes", "-k", "plain_text or linear", "--collect-only", "-q"
    )
    listed = [line for line in done.stdout.splitlines() if "::" in line]
    assert listed == [
        "core.tool_parsers:hermes::plain_text_passes_unchanged",
        "core.tool_parsers:hermes::work_is_linear",
    ]


def test_a_failure_says_plugin_check_and_finding(ordinary, make_parser):
    made = make_parser("import numpy")
    code = f"import sys, pytest; sys.path.insert(0, {str(made.site)!r}); sys.exit(pytest.main())"
    arguments = [f"--core-plugin-conformance={made.dist}", "--core-conformance-level=L0", "-k", "heavy"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ordinary, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert f"core.tool_parsers:broken ({made.dist} 1.0)" in done.stdout
    assert "importing " in done.stdout and "asks for numpy" in done.stdout
    assert "Traceback" not in done.stdout


def test_an_unknown_plugin_and_an_unwritable_report_are_usage_errors(ordinary):
    unknown = pytest_run(ordinary, "--core-plugin-conformance=hermez")
    assert unknown.returncode == 4 and "CORE-T101" in unknown.stderr and "Did you mean 'hermes'" in unknown.stderr
    report = "--core-conformance-report=no/such/folder/r.json"
    unwritable = pytest_run(ordinary, "--core-plugin-conformance=fcfs", "-k", "metadata", report)
    assert unwritable.returncode == 4 and "CORE-T102" in unwritable.stdout + unwritable.stderr


def test_importing_the_pytest_plugin_is_cheap():
    code = (
        "import sys, pytest; before = set(sys.modules); import core_testing.pytest_plugin; "
        "more = set(sys.modules) - before; "
        "print(sorted(name for name in more if name.split('.')[0] not in ('core', 'core_testing')), "
        "[name for name in sys.modules if name.startswith(('core.api', 'core.plugins', 'core_testing.conf'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[] []"


@pytest.mark.parametrize("selector", ["core-plugin-schedulers", "Core_Plugin.Schedulers"])
def test_a_distribution_selects_all_its_plugins(selector):
    assert [one.entry.name for one in subjects(selector, Shared())] == ["fcfs", "priority"]


@pytest.mark.parametrize("selector", ["core.schedulers:fcfs", "schedulers:fcfs", "fcfs", "fcfs@core-plugin-schedulers"])
def test_a_plugin_is_selected_by_name(selector):
    assert [one.title for one in subjects(selector, Shared())] == ["core.schedulers:fcfs"]


def test_nothing_selected_is_an_error():
    with pytest.raises(ConfigError, match="CORE-T101"):
        run("core.schedulers:nothing")


def outcome(level: Level, status: str) -> Outcome:
    return Outcome("check", level, status)


@pytest.mark.parametrize(
    ("states", "level"),
    [
        ({Level.L0: "passed"}, Level.L0),
        ({Level.L0: "failed", Level.L1: "passed"}, None),
        ({Level.L0: "passed", Level.L1: "passed"}, Level.L1),
        ({Level.L0: "passed", Level.L1: "unavailable", Level.L3: "passed"}, Level.L0),
        ({Level.L0: "passed", Level.L1: "passed", Level.L3: "passed"}, Level.L3),
        ({Level.L0: "passed", Level.L1: "passed", Level.L2: "passed", Level.L3: "skipped"}, Level.L2),
    ],
)
def test_levels_are_cumulative(states, level):
    entry = Entry("core.schedulers", "x", "x", "1", "x:X")
    assert PluginReport(entry, [outcome(*pair) for pair in states.items()]).level == level


def test_each_declared_accelerator_that_is_here_gets_every_device_check(monkeypatch):
    subject = subjects("torch_sdpa", Shared())[0]
    names = [job.name for job in jobs(subject, Level.L3)]
    assert "a_declared_accelerator_is_here" in names and "faster_than_reference" in names
    monkeypatch.setattr("core_testing.conformance.kit._accelerators_here", lambda _: {"xpu": "one card"})
    found = {job.name: job for job in jobs(subjects("torch_sdpa", Shared())[0], Level.L3)}
    assert found["prefill_matches_reference@xpu"].level == Level.L2
    assert found["prefill_matches_reference@xpu"].run().status == "unavailable"  # a platform says so, torch does not
    assert "faster_than_reference@xpu" in found and "a_declared_accelerator_is_here" not in found


ABSENT = """
from core.api import PlatformSpec

SPEC = PlatformSpec(
    name="broken", impl="PKG.platform:Platform", api=2, summary="s", device_type="hpu", probe="PKG.probe:probe",
    dtypes=("float32",),
)
"""


@pytest.fixture
def absent(make_plugin):
    """A platform whose device is not here."""
    probe = (
        "from core.api import ProbeResult\n\ndef probe():\n    return ProbeResult(available=False, reason='no card')\n"
    )
    platform = "from core_plugin_cpu.platform import CPUPlatform as Platform\n"
    modules = {"manifest": ABSENT, "probe": probe, "platform": platform}
    return make_plugin("core.platforms", modules)


def test_a_platform_without_its_device_is_said_not_to_have_run(absent, ordinary):
    """In the text and in the report, for every level; it is no failure, and no silent pass."""
    code = f"import sys, pytest; sys.path.insert(0, {str(absent.site)!r}); sys.exit(pytest.main())"
    arguments = [f"--core-plugin-conformance={absent.dist}", "--core-conformance-report=r.json", "-q"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ordinary, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout
    because = "no installed platform finds a device of type hpu here (platform 'broken': no card)"
    assert f"    not run, because {because}: L2, a_declared_accelerator_is_here" in done.stdout
    assert "    not run, because it does not declare the CPU" in done.stdout
    (plugin,) = json.loads((ordinary / "r.json").read_text())["plugins"]
    assert plugin["level"] == "L0"
    told = {(one["level"], one["because"]): one["checks"] for one in plugin["not_run"]}
    assert told["L2", because] == ["a_declared_accelerator_is_here"]
    (stand_in,) = [checks for (level, _), checks in told.items() if level == "L1"]
    assert "opens_its_device" in stand_in and len(stand_in) == 12


def test_speed_is_not_measured_on_a_stand_in(make_plugin):
    subject = subjects("torch_sdpa", Shared())[0]
    assert "faster_than_reference" in [job.name for job in jobs(subject, Level.L3)]
    (slow,) = [job for job in jobs(_only_for("xpu", make_plugin), Level.L3) if job.name == "faster_than_reference"]
    outcome = slow.run()
    assert (outcome.status, outcome.level) == ("unavailable", Level.L3)


def _only_for(device: str, make_plugin):
    """Return an attention backend for one device, with the CPU as a stand-in."""
    manifest = (
        "from core.api import AttentionSpec\n\nSPEC = AttentionSpec(name='broken', impl='PKG.backend:Backend', api=2, "
        f"summary='s', devices=frozenset({{{device!r}}}), dtypes=frozenset({{'float32'}}), "
        "kv_dtypes=frozenset({'float32'}))"
    )
    sample = (
        "from core_testing.conformance import ReferenceDevice\n\ndef samples():\n    yield ReferenceDevice('the CPU')\n"
    )
    backend = "from core_plugin_torch_sdpa.backend import TorchSdpaBackend as Backend"
    made = make_plugin("core.attention_backends", {"manifest": manifest, "backend": backend, "conformance": sample})
    return subjects(made.dist, Shared(), Catalogue.scan())[0]


def test_a_plugin_for_the_cpu_alone_has_nothing_to_run_at_l2():
    outcomes = run("cpu_rms_norm", level=Level.L2, checks=("a_declared_accelerator_is_here",)).plugins[0].outcomes
    assert [(one.status, one.message) for one in outcomes] == [("skipped", "it declares no device besides the CPU")]


def test_an_empty_catalogue_has_nothing_to_check():
    with pytest.raises(ConfigError):
        run("", catalogue=Catalogue([]))


def test_a_report_lists_every_plugin_on_a_line():
    report = Report()
    report.of(Entry("core.schedulers", "x", "acme", "2", "x:X")).outcomes.append(outcome(Level.L0, "failed"))
    assert report.summary() == ["--  core.schedulers:x  (acme 2)  1 failed"]
    assert not report.ok


def _every_check() -> dict[str, str]:
    areas = [*EVERY, *(area for areas in AREAS.values() for area in areas)]
    return {check.name: area for area in areas for check in checks_of(area)}


def test_every_kind_has_an_area_of_its_own():
    assert set(AREAS) == set(DESCRIPTORS) | {HOOKS_GROUP, KINDS_GROUP}


def test_every_check_has_a_broken_plugin_that_it_catches():
    tests = "".join(path.read_text() for path in ROOT.glob("tests/conformance/test_checks_catch_*.py"))
    assert sorted(name for name in _every_check() if name not in tests) == []


def test_the_guide_names_every_check_with_its_summary():
    page = (ROOT / "docs/plugins/conformance.md").read_text()
    rows = {f"| `{check.name}` | {check.summary} |" for group in AREAS for check in checks_for(group)}
    assert sorted(row for row in rows if row not in page) == []
