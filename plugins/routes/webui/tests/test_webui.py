"""The pages' files: how they are built and declared, and what node's test runner says of the scripts."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from core_plugin_webui import routes
from core_plugin_webui.manifest import WEBUI
from core_plugin_webui.routes import WebUiRoutes

WEB = Path(__file__).parents[1] / "web"
SOURCES = sorted((WEB / "src").rglob("*.mjs"))
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setAttribute\(\"style\""
WITH_NPM = pytest.mark.skipif(shutil.which("npm") is None, reason="npm, which builds the pages, is not installed here")


class Registry:
    def __init__(self):
        self.assets = {}

    def asset(self, path, content, media_type, *, headers):
        self.assets[path] = (content, media_type, headers)


def declared():
    registry = Registry()
    WebUiRoutes({}).declare(registry)
    return registry.assets


@pytest.fixture(scope="module")
def build():
    """The module that builds; where npm is installed, the pages are built."""
    module = load("build.py", WEB)
    if shutil.which("npm"):
        module.build()
    return module


def load(name, folder):
    spec = importlib.util.spec_from_file_location(f"core_plugin_webui_{Path(name).stem}", folder / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- what is built -----------------------------------------------------------------------------------------------------


@WITH_NPM
def test_every_file_is_declared_and_all_together_are_small(build):
    assets = declared()
    built = {path.name for path in build.STATIC.iterdir()} - {build.INDEX}
    assert set(assets) == {routes.PATHS.get(name, f"/ui/{name}") for name in built}
    assert assets["/ui/chat.js"][1] == "text/javascript; charset=utf-8"
    assert all(headers == {"content-security-policy": routes.POLICY} for _, _, headers in assets.values())
    assert set(WEBUI.mounts) == set(WEBUI.public) == {"/", "/ui"}
    sizes = {path: len(content) for path, (content, _, _) in assets.items()}
    assert sum(sizes.values()) < 600_000, sizes


def first_load(assets, page):
    """The files that a page asks for before anybody does something: its own, and what these import at once."""
    found = [page]
    for path in found:
        text = assets[path][0].decode()
        names = re.findall(r'(?:src|href)="(?:ui/)?([\w.-]+)"', text) if path == page else []
        names += re.findall(r'(?:from|import)"\./([\w.-]+)"', text)
        found += [f"/ui/{name}" for name in names if f"/ui/{name}" not in found and f"/ui/{name}" in assets]
    return found


@WITH_NPM
def test_formulas_and_colours_come_when_they_are_needed(build):
    assets = declared()
    files = first_load(assets, "/")
    assert "/ui/chat.js" in files and len(files) < len(assets)
    assert sum(len(assets[path][0]) for path in files) < 200_000, files
    assert any(path.startswith("/ui/math-") for path in assets) and not any("math-" in path for path in files)


@WITH_NPM
def test_the_licence_of_everything_that_is_bundled_is_beside_it(build):
    text = declared()["/ui/LICENSES.txt"][0].decode()
    wanted = json.loads((WEB / "package.json").read_text())["dependencies"]
    for name, version in wanted.items():
        assert re.search(rf"(?m)^{re.escape(name)} {re.escape(version)} \(", text), name
    assert text.count("Permission is hereby granted") >= 2 and "Apache License" in text


@WITH_NPM
def test_nothing_is_built_twice_and_changes_are_noticed(build, tmp_path, monkeypatch):
    assert build.build() is False
    copy = tmp_path / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules", "tests"))
    monkeypatch.setattr(build, "WEB", copy)
    assert build.is_current()
    (copy / "src" / "chat.mjs").write_text("// changed")
    assert not build.is_current()


def test_without_npm_the_server_says_how_the_page_is_built(build, tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.setattr(build, "STATIC", tmp_path / "static")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(build.BuildError, match="npm is not installed"):
        build.build()
    assert build.main(["--optional"]) == 0 and build.main([]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "npm is not installed" in said[0] and "the server works without" in said[0]
    (tmp_path / "unbuilt.html").write_bytes((WEB.parent / "src/core_plugin_webui/unbuilt.html").read_bytes())
    monkeypatch.setattr(routes, "files", lambda package: tmp_path)
    assets = declared()
    assert set(assets) == {"/"} and b"web/build.py" in assets["/"][0]
    assert "not built" in caplog.text


@pytest.mark.parametrize("kind", ["editable", "standard"])
def test_only_an_installation_from_the_checkout_goes_on_without_the_pages(tmp_path, kind):
    pytest.importorskip("hatchling")
    warned = []
    (tmp_path / "web").mkdir()
    failing = "class BuildError(Exception): ...\n\n\ndef build():\n    raise BuildError('no npm')\n"
    (tmp_path / "web" / "build.py").write_text(failing)
    app = SimpleNamespace(display_warning=warned.append)
    hook = load("hatch_build.py", WEB.parent).PageHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel", app)
    if kind == "editable":
        hook.initialize(kind, {})
    else:
        with pytest.raises(Exception, match="no npm"):
            hook.initialize(kind, {})
    assert warned == (["no npm"] if kind == "editable" else [])


@WITH_NPM
def test_a_source_distribution_has_the_sources_and_builds_the_wheel_without_npm(build, tmp_path):
    script = (
        "import os, sys; from hatchling import build\nos.chdir(sys.argv[1])\ngetattr(build, sys.argv[3])(sys.argv[2])"
    )

    def run(project, kind, **variables):
        words = [sys.executable, "-P", "-c", script, project, tmp_path, kind]
        subprocess.run(words, check=True, capture_output=True, timeout=120, env=variables or None)

    run(WEB.parent, "build_sdist")
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path, filter="data")
    folder = tmp_path / archive.name.removesuffix(".tar.gz")
    assert (folder / "web" / "src" / "chat.mjs").is_file() and not (folder / "web" / "node_modules").exists()
    run(folder, "build_wheel", PATH="/nonexistent")
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as built:
        names = {Path(name).name for name in built.namelist() if "/static/" in name}
    assert names == {path.name for path in build.STATIC.iterdir()}


# -- the sources -------------------------------------------------------------------------------------------------------


def test_scripts_make_no_markup_of_texts_and_ask_nobody_else():
    assert len(SOURCES) > 10
    for path in SOURCES:
        text = path.read_text()
        assert not re.search(MARKUP, text), path
        assert not re.search(r"""["'`](?:https?:)?//\w""", text), path


@WITH_NPM
def test_scripts(build):
    tests = sorted(str(path) for path in (WEB / "tests").glob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(?m)^(?:#|ℹ) pass (\d+)", done.stdout)[1]) > 50
