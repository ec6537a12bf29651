"""`core plugins list, info, why, doctor, hooks` see the plugins that `core serve` would see with the same words."""

from __future__ import annotations

import json
import sys

import pytest

SLOW = """
from core.api import SchedulerPolicySpec, hookimpl

__core_drivers__ = [SchedulerPolicySpec(name="slow", impl="slow_file:Slow", api=1, summary="From a file")]


class Slow:
    def key(self, request): ...
    def victim(self, running): ...


@hookimpl
def core_engine_event(event):
    print(event)
"""


@pytest.fixture
def two(site):
    site.policy("acme")
    site.policy("bolt", name="lifo")
    site.only()
    return site


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "slow_file.py"
    path.write_text(SLOW)
    return path


def states(core, *words):
    status, out, err = core("plugins", "list", "--json", *words)
    assert status == 0, err
    return {row["name"]: row["state"] for row in json.loads(out)}


def test_the_list_says_what_is_disabled_or_left_out(two, core, monkeypatch, tmp_path):
    assert states(core) == {"fifo": "ok", "lifo": "ok"}
    assert states(core, "--disable-plugin", "lifo") == {"fifo": "ok", "lifo": "disabled"}
    assert states(core, "--plugins", "acme") == {"fifo": "ok", "lifo": "left out: --plugins leaves it out"}
    assert set(states(core, "--plugins=none").values()) == {"left out: --plugins leaves it out"}
    assert states(core, "--plugins=all") == {"fifo": "ok", "lifo": "ok"}
    config = tmp_path / "core.toml"
    config.write_text('[select]\ndisable_plugin = ["acme"]\n')
    assert states(core, "--config", config)["fifo"] == "disabled"
    monkeypatch.setenv("CORE_PLUGINS", "bolt")
    assert states(core)["fifo"].startswith("left out")


def test_a_plugin_file_is_listed_described_and_hooked_in(two, core, file):
    assert states(core, "--plugin-file", file) == {"fifo": "ok", "lifo": "ok", "slow": "ok", "slow_file": "not loaded"}
    assert states(core, "--plugin-file", file, "--plugins=none")["slow"] == "ok"
    status, out, _ = core("plugins", "info", "slow", "--plugin-file", file, "--json")
    assert status == 0 and json.loads(out)[0]["distribution"] == "file:slow_file"
    _, out, _ = core("plugins", "hooks", "--plugin-file", file)
    assert "1. slow_file  file:slow_file" in out
    _, out, _ = core("plugins", "hooks", "--plugin-file", file, "--disable-plugin", "slow_file")
    assert "slow_file" not in out


def test_info_says_so_of_a_plugin_that_takes_no_part(two, core):
    _, out, _ = core("plugins", "info", "fifo", "--disable-plugin=acme", "--json")
    assert json.loads(out)[0]["state"] == "disabled"
    _, out, _ = core("plugins", "info", "fifo", "--plugins=none")
    assert "left out: --plugins leaves it out" in out


def test_why_has_them_as_well(two, core, file, site):
    words = ["--plugins=none", "--plugin-file", site.world(), "--plugin-file", file, "--scheduler-policy=slow"]
    status, out, _ = core("plugins", "why", "--json", *words)
    assert status == 0
    assert {one["dist"] for one in json.loads(out)["plan"]["drivers"]} == {"file:world", "file:slow_file"}


def examined(core, *words):
    status, out, err = core("plugins", "doctor", "--json", *words)
    return status, json.loads(out) if out else err


def of_the_file(data):
    """The findings on the plugin file: the environment of the tests may have some of its own."""
    return [finding for finding in data["findings"] if finding["distribution"] == "file:slow_file"]


def test_the_doctor_examines_what_takes_part(two, core):
    two.policy("ruin", name="ruin", manifest="import no_such_library")
    assert examined(core)[0] == 1
    status, data = examined(core, "--disable-plugin=ruin")
    assert (status, data["plugins"], data["error"]) == (0, 2, 0)
    status, data = examined(core, "--plugins=bolt")
    assert (status, data["plugins"]) == (0, 1)
    status, err = examined(core, "ruin", "--disable-plugin=ruin")
    assert status == 1 and "CORE-P101" in err and "it is disabled by 'ruin'" in err
    status, err = examined(core, "fifo", "--plugins=none")
    assert status == 1 and "--plugins leaves it out" in err


def test_disabling_one_of_two_settles_a_name(two, core):
    two.policy("again")
    assert examined(core, "fifo")[0] == 1
    assert examined(core, "fifo", "--disable-plugin=again")[0] == 0


def test_the_doctor_examines_a_file_in_a_process_of_its_own(two, core, file):
    status, data = examined(core, "--plugins=none", "--plugin-file", file)
    assert (status, data["plugins"], of_the_file(data)) == (0, 2, [])
    assert "slow_file" not in sys.modules
    status, data = examined(core, "slow", "--plugin-file", file)
    assert (status, data["plugins"]) == (0, 1)


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [
        ("import no_such_library", "CORE-P103", "no_such_library"),
        ("x = 1", "CORE-P303", "it offers no plugin"),
        ("import os; os._exit(7)", "CORE-P126", "status 7"),
        (SLOW.replace("slow_file:Slow", "slow_file:Gone"), "CORE-P103", "Gone"),
        (SLOW.replace("core_engine_event(event)", "core_engine_event(evnet)"), "CORE-P107", "evnet"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_finding(two, core, file, source, code, text):
    file.write_text(source)
    status, data = examined(core, "--plugin-file", file, "--plugins=none")
    (finding,) = of_the_file(data)
    assert status == 1 and finding["code"] == code and text in finding["cause"]


@pytest.mark.parametrize("action", [("list",), ("info", "fifo"), ("doctor",), ("hooks",), ("why",)])
def test_a_flag_that_is_wrong_is_an_error_and_another_setting_only_a_warning(two, core, action, monkeypatch, tmp_path):
    status, _, err = core("plugins", *action, "--plugins=none,acme")
    assert status == 2 and "CORE-C140" in err
    status, _, err = core("plugins", *action, "--disable-plugins=acme")
    assert status == 2 and "Did you mean '--disable-plugin'?" in err
    status, _, err = core("plugins", *action, "--config", tmp_path / "missing.toml")
    assert status == 2 and "CORE-C103" in err
    if action != ("why",):
        monkeypatch.setenv("CORE_PORT", "many")
        status, _, err = core("plugins", *action)
        assert status == 0 and "warning: CORE-C101 variable CORE_PORT" in err


def test_a_wrong_plugin_file_is_an_error(two, core, tmp_path):
    for action in (("list",), ("info", "fifo"), ("hooks",)):
        status, _, err = core("plugins", *action, "--plugin-file", tmp_path / "none.py")
        assert status == 1 and "CORE-P303" in err
