"""`core plugins new`: for every kind a distribution that works at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest
import trove_classifiers
from core_plugin_author.scaffold import scaffold, template_groups

from core.api.descriptors import DESCRIPTORS
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors, load_impl
from core.plugins.hooks import Hooks
from core.plugins.kinds import KINDS

GROUPS = [*DESCRIPTORS, "core.plugins"]
TORCH_FREE = [
    *("core.tool_parsers", "core.schedulers", "core.model_sources", "core.executors", "core.kv_connectors"),
    *(
        "core.stat_sinks",
        "core.io_processors",
        "core.routes",
        "core.commands",
        "core.flag_dialects",
        "core.option_sections",
        "core.tool_servers",
        "core.chat_templates",
        "core.structured_output",
        "core.drafters",
        "core.participants",
        "core.tasks",
        "core.weight_loaders",
        "core.weight_stores",
    ),
]


def name_of(group):
    return "my-" + group.removeprefix("core.").replace("_", "-")


@pytest.fixture
def projects(site, tmp_path):
    """Every kind's scaffold, built and installed."""
    made = {}
    for group in GROUPS:
        made[group] = scaffold(KINDS[group], name_of(group), tmp_path / "projects")
        site.build(made[group].folder)
    site.only()
    return made


def test_every_kind_has_a_template():
    assert sorted(template_groups(KINDS.values())) == sorted(GROUPS)


def test_every_scaffold_is_found_and_loads(projects):
    catalogue = Catalogue.scan()
    for group in DESCRIPTORS:
        (candidate,), failures = load_descriptors(catalogue.entries(group))
        assert not failures and candidate.descriptor.name == name_of(group)
        if group in TORCH_FREE:
            assert callable(load_impl(candidate.descriptor.impl, candidate.entry))
    hooks = Hooks(catalogue.entries("core.plugins"))
    assert not hooks.failures and hooks.validate({"scheduler": {"max_waiting": 20000}})[0][1].level == "warning"


def test_their_own_tests_pass(projects, site):
    """All of them in one process: with their implementations, torch included."""
    folders = [one.folder for one in projects.values()]
    options = [
        "-q",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(folders[0].parent),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, folders)],
        env={**os.environ, "PYTHONPATH": str(site.root)},
        cwd=folders[0].parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(re.search(r"(\d+) passed", done.stdout)[1])
    assert passed >= 4 * len(GROUPS)


def test_every_line_is_filled_in_and_clean(tmp_path):
    for group in GROUPS:
        made = scaffold(KINDS[group], "acme", tmp_path / group)
        for text in ((made.folder / path).read_text() for path in made.written):
            assert not re.search(r"\$[{a-z]", text)
    for words in (["check", "--select", "E,F,W,B,UP,C4,RET", "--ignore", "B905"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", "--line-length", "120"]
        done = subprocess.run(
            [*command, "--target-version", "py311", "--no-cache", str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:]


def test_a_project_is_classified_and_has_a_place_for_the_authors_addresses(tmp_path):
    text = (scaffold(KINDS["core.schedulers"], "acme", tmp_path).folder / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    assert "urls" not in project  # core's would be wrong, and nobody has theirs yet
    assert '# [project.urls]\n# Homepage = "https://example.com/core-plugin-acme"\n' in text
    urls = tomllib.loads(re.sub(r"^# (?=\[|Home)", "", text, flags=re.MULTILINE))["project"]["urls"]
    assert urls == {"Homepage": "https://example.com/core-plugin-acme"}
    assert project["classifiers"] and set(project["classifiers"]) <= trove_classifiers.classifiers


def test_the_command_says_what_was_written_and_what_comes_next(core, tmp_path):
    status, out, _ = core("plugins", "new", "tool_parsers", "acme", "--dir", tmp_path)
    folder = tmp_path / "core-plugin-acme"
    assert status == 0
    for path in ("pyproject.toml", "README.md", "src/core_plugin_acme/parser.py", "tests/test_acme.py"):
        assert f"  {path}\n" in out and (folder / path).is_file()
    assert f"core plugins install {folder}" in out and "core serve --tool-parser acme" in out


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        ("tool_parsers", "Acme", "CORE-P321 'Acme' cannot be"),
        ("tool_parsers", "../x", "CORE-P321"),
        ("tool_parsers", "a__b", "CORE-P321"),
        ("tool_parsrs", "acme", "Did you mean 'tool_parsers'"),
    ],
)
def test_names_and_kinds_are_checked(core, tmp_path, kind, name, text):
    status, _, err = core("plugins", "new", kind, name, "--dir", tmp_path)
    assert status == 1 and text in err and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_told(core, tmp_path):
    (tmp_path / "file").touch()
    status, _, err = core("plugins", "new", "hooks", "acme", "--dir", tmp_path / "file")
    assert status == 1 and "CORE-P321" in err and "cannot be written" in err


def test_nothing_is_overwritten(core, tmp_path):
    core("plugins", "new", "hooks", "acme", "--dir", tmp_path)
    readme = tmp_path / "core-plugin-acme" / "README.md"
    readme.write_text("mine")
    status, _, err = core("plugins", "new", "hooks", "acme", "--dir", tmp_path)
    assert status == 1 and "exists already" in err and readme.read_text() == "mine"
