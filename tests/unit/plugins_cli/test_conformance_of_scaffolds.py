"""What `core plugins new` writes passes the kit's first level as it is; `core plugins test` runs the kit and tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from core.cli.main import main
from core.plugins.kinds import KINDS
from core_testing.conformance import Level

KIT = """
import json, sys
from core.plugins.catalog import Catalogue
from core_testing.conformance import Level, run

mine = Catalogue([entry for entry in Catalogue.scan().every() if entry.name.startswith("my-")])
quick = set(sys.argv[1:])
told = {}
for one in run(level=Level.L0, catalogue=mine).plugins:
    checks = sorted(outcome.check for outcome in one.outcomes)
    failed = [str(fault) for fault in one.failures]
    told[one.entry.group] = {"level": str(one.level), "failed": failed, "checks": checks}
for one in run(level=Level.L1, catalogue=mine, checks=quick).plugins:
    told[one.entry.group]["quick"] = {outcome.check: f"{outcome.status} {outcome.message}" for outcome in one.outcomes}
print(json.dumps(told))
"""

SAMPLED = {
    "core.platforms": ("closes_for_good",),
    "core.weight_loaders": ("progress_adds_up", "missing_files_are_refused", "values_are_those_meant"),
    "core.structured_output": ("sentences_are_accepted", "other_texts_are_refused"),
    "core.logits": ("check_refuses_with_value_errors", "rows_do_not_mix", "logits_equal_the_samples_reference"),
    "core.commands": ("samples_run", "wrong_usage_has_status_2"),
    "core.flag_dialects": ("samples_become_cores_flags", "refusals_say_why"),
    "core.tool_parsers": ("samples_give_their_events",),
    "core.model_sources": ("samples_resolve",),
    "core.routes": ("samples_are_answered",),
    "core.weight_stores": ("tensors_come_back", "what_is_given_up_is_not_kept"),
    "core.weight_transfer": ("tensors_arrive_unchanged", "missing_updates_do_no_harm"),
}
"""Checks beyond the first level that need what the scaffold's own `conformance.py` gives, or were hard to pass."""


def in_shell(site, *words, cwd):
    """Run a command that has `site` on its path."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("CORE_", "PYTEST"))}
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env={**environ, "PYTHONPATH": str(site)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


def word(group):
    return group.removeprefix("core.")


@pytest.fixture(scope="module")
def reached(tmp_path_factory, install_wheel):
    """Group -> what the kit says of its scaffold, all of them checked in one run."""
    place = tmp_path_factory.mktemp("scaffolds")
    (place / "site").mkdir()
    for group in KINDS:
        name = "my-" + word(group).replace("_", "-")
        kind = "hooks" if group == "core.plugins" else word(group)
        assert main(["plugins", "new", kind, name, "--dir", str(place)]) == 0
        install_wheel(place / f"core-plugin-{name}", place / "site")
    quick = {name for names in SAMPLED.values() for name in names}
    done = in_shell(place / "site", "-c", KIT, *quick, cwd=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.covers("PRAC-01")
@pytest.mark.parametrize("group", KINDS, ids=word)
def test_a_new_plugin_of_every_kind_reaches_the_first_level_at_once(reached, group):
    assert reached[group]["failed"] == []
    assert reached[group]["level"] == str(Level.L0)
    assert {"requirements_are_met", "distribution_has_metadata", "loads_in_a_spawned_process"} <= set(
        reached[group]["checks"]
    )


@pytest.mark.parametrize("group", SAMPLED, ids=word)
def test_a_new_plugin_passes_with_the_samples_it_comes_with(reached, group):
    assert {check: reached[group]["quick"][check].strip() for check in SAMPLED[group]} == dict.fromkeys(
        SAMPLED[group], "passed"
    )


@pytest.fixture
def policy(tmp_path, install_wheel):
    """Install a scheduling policy; `key` is the body of its key."""
    site = tmp_path / "site"
    site.mkdir()

    def policy(name, key=None):
        assert main(["plugins", "new", "schedulers", name, "--dir", str(tmp_path)]) == 0
        folder = tmp_path / f"core-plugin-{name}"
        (source,) = [path for path in folder.glob("src/*/*.py") if "def key" in path.read_text()]
        if key is not None:
            head, _, rest = source.read_text().partition("        return ")
            source.write_text(f"{head}        return {key}\n{rest.partition(chr(10))[2]}")
        install_wheel(folder, site)
        return lambda *words: in_shell(site, "-m", "core.cli", "plugins", "test", *words, cwd=tmp_path)

    return policy


def of_report(path):
    (plugin,) = json.loads(path.read_text())["plugins"]
    return plugin["level"], {check["check"]: check["status"] for check in plugin["checks"]}


def test_a_good_plugin_passes(policy, tmp_path):
    test = policy("good")
    done = test("good", "--level=L1", "--report", "good.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "core.schedulers:good" in done.stdout
    level, checks = of_report(tmp_path / "good.json")
    assert level == "L1" and "failed" not in checks.values() and checks["key_is_a_total_order"] == "passed"


def test_a_broken_plugin_fails_and_the_report_says_where(policy, tmp_path):
    test = policy("bad", key="(0,)")
    done = test("bad", "--level", "L1", "--report", "bad.json", "--", "-k", "key or requirements")
    assert done.returncode == 1
    assert "key_is_a_total_order" in done.stdout
    level, checks = of_report(tmp_path / "bad.json")
    assert level != "L1"
    assert checks["key_is_a_total_order"] == "failed" and checks["requirements_are_met"] == "passed"


def test_nothing_of_that_name_is_told(policy):
    done = policy("good")("goood")
    assert done.returncode == 4
    assert "CORE-T101" in done.stderr and "Did you mean 'good'?" in done.stderr
