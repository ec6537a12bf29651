"""docs/cli.md is made from the commands' own definitions, is the same everywhere, and is checked."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.cli.tree import commands, whole_parser
from core.config.fields import option_fields
from core.plugins.kinds import KINDS

ROOT = Path(__file__).resolve().parents[3]


def run(root: Path, *arguments: str, **variables: str):
    return subprocess.run(
        [sys.executable, root / "tools" / "cli_reference.py", *arguments],
        env={**os.environ, **variables},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with the tool and the plugins, and a page that the tool has just written."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("tools", "docs"):
        (root / name).mkdir()
    shutil.copy(ROOT / "tools" / "cli_reference.py", root / "tools")
    (root / "plugins").symlink_to(ROOT / "plugins")
    done = run(root)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return root


@pytest.fixture(scope="module")
def page(checkout):
    return (checkout / "docs" / "cli.md").read_text()


@pytest.mark.covers("CLI-01")
def test_every_command_and_every_flag_is_there(page):
    for path, parser in commands(whole_parser()):
        assert parser.get_default("run") is None or f"core {path}" in page
        shown = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
        for flag in (flag for action in shown for flag in action.option_strings if flag.startswith("--")):
            switch = f"`--[no-]{flag.removeprefix('--').removeprefix('no-')}`"
            assert f"`{flag}" in page or f", {flag}" in page or switch in page


def test_every_option_has_its_twins_limits_and_further_spellings(page):
    for field in option_fields():
        (row,) = [line for line in page.splitlines() if f"`{field.env}`, `{field.path}`" in line]
        assert all(name in row for name in field.names)
        assert all(choice in row for choice in field.choices) and all(limit in row for limit in field.limits)


def test_options_and_plugins_are_shown_with_their_owner(page):
    assert (
        "| `--opt cpu_offload.capacity=` |" in page and "KV connector `cpu_offload` of core-plugin-cpu-offload" in page
    )
    for kind in KINDS.values():
        assert not kind.option or f"| `{kind.flag}` | {kind.label} | " in page
    assert "`hermes` (core-plugin-hermes)" in page


def test_an_untouched_page_is_current(checkout):
    done = run(checkout, "--check")
    assert (done.returncode, done.stdout) == (0, "")


def test_neither_the_terminal_nor_the_machine_nor_other_plugins_show(checkout, tmp_path):
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[core.commands]\nfly = acme:FLY\n[core.schedulers]\nfar = acme:FAR\n")
    done = run(checkout, "--check", PYTHONPATH=str(tmp_path), COLUMNS="41", CORE_PORT="7", LANG="C", HOME="/nowhere")
    assert (done.returncode, done.stdout) == (0, "")


def test_a_stale_page_is_told_with_a_short_difference(checkout, page):
    path = checkout / "docs" / "cli.md"
    try:
        path.write_text(page.replace("`CORE_PORT`", "`CORE_PROT`"))
        done = run(checkout, "--check")
        assert done.returncode == 1
        assert "docs/cli.md is stale: run `python tools/cli_reference.py`." in done.stdout
        assert "CORE_PROT" in done.stdout and len(done.stdout.splitlines()) < 30
        path.unlink()
        done = run(checkout, "--check")
        assert done.returncode == 1 and len(done.stdout.splitlines()) < 30
    finally:
        path.write_text(page)


def test_the_verbs_of_the_repository_use_it():
    makefile = (ROOT / "Makefile").read_text()
    assert "tools/cli_reference.py --check" in makefile.partition("\nchecks:")[2].partition("\n\n")[0]
    assert "tools/cli_reference.py\n" in makefile.partition("\ndocs:")[2].partition("\n\n")[0]
    assert "docs/cli.md" in (ROOT / "README.md").read_text()
