"""What every distribution of the repository says about itself, and which of them come with core."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
import trove_classifiers
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
HOME = "https://github.com/core-serving/core"
FOLDERS = [ROOT, *sorted(file.parent for file in ROOT.glob("plugins/*/*/pyproject.toml"))]
PROJECTS = {path: tomllib.loads((path / "pyproject.toml").read_text())["project"] for path in FOLDERS}
CORE = PROJECTS[ROOT]
PLUGINS = {project["name"]: project for path, project in PROJECTS.items() if path != ROOT}
LINK = re.compile(r"\]\(([^)\s]+)\)")

each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: PROJECTS[folder]["name"])


def needed(project):
    return {Requirement(text).name for text in project["dependencies"]}


@each
def test_the_licence_is_in_the_folder_so_that_it_is_in_the_wheel(folder):
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    bundled = " AND MIT AND BSD-3-Clause" if (folder / "web" / "package.json").is_file() else ""
    assert PROJECTS[folder]["license"] == f"Apache-2.0{bundled}"
    assert PROJECTS[folder]["license-files"] == ["LICENSE"]


@each
def test_addresses_and_classifiers(folder):
    project = PROJECTS[folder]
    assert project["urls"] == {
        "Homepage": HOME,
        "Documentation": f"{HOME}/tree/main/docs",
        "Issues": f"{HOME}/issues",
        "Changelog": f"{HOME}/blob/main/CHANGELOG.md",
    }
    assert set(PLUGINS["core-plugin-cpu"]["classifiers"]) <= set(project["classifiers"])
    assert set(project["classifiers"]) <= trove_classifiers.classifiers
    assert not [one for one in project["classifiers"] if one.startswith("License ::")]  # refused beside `license`


@each
def test_links_of_the_page_on_an_index_lead_somewhere(folder):
    text = readme_of_core() if folder == ROOT else (folder / "README.md").read_text()
    links = [link for link in LINK.findall(text) if not link.startswith("#")]
    assert [link for link in links if not link.startswith("https://")] == []
    for link in links:
        place = re.fullmatch(rf"{HOME}/(?:blob|tree)/main/([^#]+)(?:#.*)?", link)
        assert place is None or (ROOT / place[1]).exists()
    assert folder != ROOT or len(links) > 20


def readme_of_core():
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    metadata = {"urls": CORE["urls"]}
    module.ReadmeHook(str(ROOT), {}).update(metadata)
    return metadata["readme"]["text"]


def test_links_that_are_left_alone_and_those_that_are_not(tmp_path):
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "README.md").write_text("[a](docs/a.md#b) [c](#d) [e](https://example.com) [f](http://example.com) ()")
    metadata = {"urls": {"Homepage": "https://h"}}
    module.ReadmeHook(str(tmp_path), {}).update(metadata)
    text = "[a](https://h/blob/main/docs/a.md#b) [c](#d) [e](https://example.com) [f](http://example.com) ()"
    assert metadata["readme"] == {"content-type": "text/markdown", "text": text}


# -- the bundle --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("PKG-01")
def test_the_bundle_is_made_of_distributions_that_the_checkout_installs(bundle):
    lines = (ROOT / "requirements" / "cpu.txt").read_text().splitlines()
    installed = {PROJECTS[ROOT / line.removeprefix("-e ./")]["name"] for line in lines if line.startswith("-e ./")}
    assert len(set(bundle)) == len(bundle) > 15
    assert set(bundle) <= installed


def test_no_platform_is_in_the_bundle_and_every_other_needed_kind_is(bundle):
    kinds = {group for name in bundle for group in PLUGINS[name].get("entry-points", {})}
    wanted = {"attention_backends", "quantization", "models", "weight_loaders", "model_sources", "executors"}
    assert "core.platforms" not in kinds
    assert {f"core.{kind}" for kind in wanted} | {"core.schedulers", "core.tool_parsers", "core.routes"} <= kinds


def test_every_plugin_is_in_the_bundle_or_the_page_says_why_not(bundle):
    page = (ROOT / "docs" / "installation.md").read_text()
    inside, _, outside = page.partition("## What is not in the bundle")
    brought = {name for plugin in bundle for name in needed(PLUGINS[plugin]) if name in PLUGINS}
    assert [name for name in {*bundle, *brought} if f"`{name}`" not in inside] == []
    assert [name for name in set(PLUGINS) - {*bundle, *brought} if f"`{name}`" not in outside] == []


def test_an_extra_is_one_plugin_outside_the_bundle(bundle):
    for name, texts in CORE["optional-dependencies"].items():
        (plugin,) = (Requirement(text).name for text in texts)
        assert plugin in PLUGINS and plugin not in bundle
        assert name == "demo" or plugin in (f"core-plugin-{name}", f"core-{name}")


def test_what_core_and_its_plugins_ask_of_each_other_are_versions_of_one_range():
    texts = [text for name, one in PLUGINS.items() if name != "core-testing" for text in one["dependencies"]]
    texts += CORE["dependencies"]
    ours = [one for one in map(Requirement, texts) if one.name == "core" or one.name in PLUGINS]
    assert {str(one.specifier) for one in ours} == {"<0.3,>=0.1"}
    assert "core==0.1.*" in PLUGINS["core-testing"]["dependencies"]  # it reaches behind `core.api`
