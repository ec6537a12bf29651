"""`core plugins enable`, `disable`, `install`, `uninstall`, `test`: the files they edit, the commands they run."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib

import pytest

from core.plugins import bundles

COMMENTED = """# my settings
[server]
port = 9000  # not the default

[select]
disable_plugin = [
    "old",  # broken since May
]
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def broken(site):
    site.policy("broken", manifest="raise OSError('never import me')")
    return site


def disabled(path):
    return tomllib.loads(path.read_text()).get("select", {}).get("disable_plugin")


def test_a_broken_plugin_is_put_away_and_taken_back(broken, core, here, monkeypatch):
    status, out, _ = core("plugins", "disable", "broken")
    assert status == 0 and "broken is disabled (schedulers:fifo)" in out and "--config core.toml" in out
    assert disabled(here / "core.toml") == ["broken"]
    monkeypatch.setenv("CORE_CONFIG", str(here / "core.toml"))
    _, out, _ = core("plugins", "list", "--kind", "schedulers")
    assert [line.split()[-1] for line in out.splitlines() if " broken " in line] == ["disabled"]
    status, out, _ = core("plugins", "enable", "broken")
    assert status == 0 and "--config" not in out
    assert disabled(here / "core.toml") == []


def test_comments_and_layout_stay(broken, core, here, monkeypatch):
    path = here / "mine.toml"
    path.write_text(COMMENTED)
    monkeypatch.setenv("CORE_CONFIG", str(path))
    core("plugins", "disable", "schedulers:fifo")
    assert disabled(path) == ["old", "schedulers:fifo"]
    assert "# broken since May" in path.read_text() and "port = 9000  # not the default" in path.read_text()
    core("plugins", "enable", "schedulers:fifo")
    assert tomllib.loads(path.read_text()) == tomllib.loads(COMMENTED)
    assert "# broken since May" in path.read_text()


@pytest.mark.parametrize(
    "text", ["disable-plugin = 'old'\n", '"select.disable_plugin" = ["old"]\n', "[select]\ndisable-plugin = ['old']\n"]
)
def test_every_spelling_of_the_list_is_understood(broken, core, here, monkeypatch, text):
    path = here / "core.toml"
    path.write_text(text)
    monkeypatch.setenv("CORE_CONFIG", str(path))
    assert core("plugins", "disable", "broken")[0] == 0
    _, out, _ = core("config", "show", "--set")
    assert "['old', 'broken']" in out


def test_doing_it_twice_changes_nothing(broken, core, here):
    core("plugins", "disable", "broken")
    before = (here / "core.toml").read_text()
    assert "disabled already" in core("plugins", "disable", "broken")[1]
    assert (here / "core.toml").read_text() == before
    status, _, err = core("plugins", "enable", "fifo")
    assert status == 1 and "under another name: broken" in err
    core("plugins", "enable", "broken")
    assert "is not disabled" in core("plugins", "enable", "broken")[1]


def test_slips_and_files_that_cannot_be_edited(broken, core, here, monkeypatch):
    status, _, err = core("plugins", "disable", "brokn")
    assert status == 1 and "Did you mean 'broken'" in err and not (here / "core.toml").exists()
    (here / "core.toml").write_text("[select\n")
    status, _, err = core("plugins", "disable", "broken")
    assert status == 2 and "CORE-C141" in err
    monkeypatch.setenv("CORE_CONFIG", "mine.yaml")
    status, _, err = core("plugins", "disable", "broken")
    assert status == 2 and "only TOML files are edited" in err


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    root = tmp_path / "checkout"
    for kind, name in (("platforms", "cpu"), ("tool_parsers", "hermes")):
        folder = root / "plugins" / kind / name
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(f'[project]\nname = "core-plugin-{name}"\n')
    (root / "pyproject.toml").write_text('[project]\nname = "core"\n')
    (root / "requirements").mkdir()
    (root / "requirements" / "cpu.txt").write_text("# all\n-e .\n-e ./plugins/platforms/cpu\n")
    (root / "requirements" / "test.txt").write_text("pytest\n")
    monkeypatch.setattr(bundles, "checkout", lambda: root)
    return root


def command(core, *words):
    status, out, _ = core("plugins", *words, "--dry-run")
    assert status == 0
    words = shlex.split(out)
    assert words[:3] == [sys.executable, "-m", "pip"]
    return words[3:]


def test_bundles_and_names_of_a_checkout(checkout, core):
    assert command(core, "install", "cpu") == [
        "install",
        "-e",
        str(checkout),
        "-e",
        str(checkout / "plugins/platforms/cpu"),
    ]
    assert command(core, "install", "hermes") == ["install", "-e", str(checkout / "plugins/tool_parsers/hermes")]
    assert command(core, "uninstall", "cpu") == ["uninstall", "--yes", "core-plugin-cpu"]
    assert bundles.bundles(checkout) == ["cpu"]


def test_without_a_checkout_names_are_those_of_an_index(core, monkeypatch, here):
    monkeypatch.setattr(bundles, "checkout", lambda: None)
    assert command(core, "install", "cpu", "acme-parser>=2") == ["install", "core-plugin-cpu", "acme-parser>=2"]
    assert command(core, "install", "cpu_offload") == ["install", "core-plugin-cpu-offload"]
    assert command(core, "uninstall", "cpu") == ["uninstall", "--yes", "core-plugin-cpu"]


def test_folders_and_flags_for_pip(checkout, core):
    folder = str(checkout / "plugins/platforms/cpu")
    words = ["plugins", "install", "--dry-run", folder, "--", "--no-deps"]
    status, out, _ = core(*words)
    assert status == 0 and shlex.split(out)[3:] == ["install", "--no-deps", "-e", folder]
    assert command(core, "uninstall", folder) == ["uninstall", "--yes", "core-plugin-cpu"]


def test_core_does_not_uninstall_itself(core):
    status, _, err = core("plugins", "uninstall", "core", "--dry-run")
    assert status == 1 and "CORE-P320" in err


def test_a_failure_of_pip_is_an_error(core, monkeypatch, here):
    monkeypatch.setattr(bundles, "checkout", lambda: None)
    monkeypatch.setattr(subprocess, "run", lambda words, check: subprocess.CompletedProcess(words, 3))
    status, out, err = core("plugins", "install", "cpu")
    assert status == 1 and "pip ended with status 3" in err and "core-plugin-cpu" in out


def test_the_conformance_kit_is_pytest_with_a_flag(core, monkeypatch):
    ran = []
    monkeypatch.setattr(
        subprocess, "run", lambda words, check: ran.append(words) or subprocess.CompletedProcess(words, 5)
    )
    assert core("plugins", "test", "hermes", "--", "-x")[0] == 5
    assert ran == [[sys.executable, "-m", "pytest", "--core-plugin-conformance=hermes", "-x"]]


def test_the_conformance_kit_is_a_distribution_of_its_own(core, monkeypatch):
    monkeypatch.setattr("core_plugin_author.kit.find_spec", lambda name: None)
    status, _, err = core("plugins", "test", "hermes")
    assert status == 1 and "CORE-P322" in err and "pip install core-testing" in err
