"""The page's files: what they are, and what node's test runner says of the scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
from core_plugin_webui.manifest import WEBUI
from core_plugin_webui.routes import FILES, PAGE, WebUiRoutes

STATIC = Path(str(files("core_plugin_webui") / "static"))
SCRIPTS = sorted(STATIC.glob("*.mjs"))
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"


class Registry:
    def __init__(self):
        self.assets = {}

    def asset(self, path, content, media_type, *, headers):
        self.assets[path] = (content, media_type, headers)


def test_every_file_is_declared_and_none_too_many():
    registry = Registry()
    WebUiRoutes({}).declare(registry)
    assert set(FILES) == {path.name for path in STATIC.iterdir()}
    assert set(registry.assets) == {"/"} | {f"/ui/{name}" for name in FILES if name != PAGE}
    assert registry.assets["/ui/app.mjs"][1] == "text/javascript; charset=utf-8"
    assert sum(len(content) for content, _, _ in registry.assets.values()) < 100_000
    assert set(WEBUI.mounts) == set(WEBUI.public) == {"/", "/ui"}


def test_scripts_make_no_markup_of_texts_and_ask_nobody_else():
    for path in SCRIPTS:
        text = path.read_text()
        assert not re.search(MARKUP, text), path
        assert not re.search(r"""["'`](?:https?:)?//\w""", text), path


def test_the_page_has_what_the_scripts_look_for():
    page = (STATIC / PAGE).read_text()
    ids = set(re.findall(r' id="([\w-]+)"', page))
    used = {name for path in SCRIPTS for name in re.findall(r'(?:\$|\bon)\("([\w-]+)"', path.read_text())}
    assert len(used) > 10 and used <= ids and 'lang="en"' in page and "viewport" in page
    for control in re.findall(r"<(?:input|select|textarea)[^>]*>", page):
        name = re.search(r'id="([\w-]+)"', control)[1]
        labelled = "aria-label" in control or f'for="{name}"' in page or re.search(rf"<label>[^<]*{control}", page)
        assert labelled, control


@pytest.mark.skipif(shutil.which("node") is None, reason="the scripts are tested by node, which is not installed here")
def test_scripts():
    tests = sorted(str(path) for path in (Path(__file__).parent / "js").glob("*.test.mjs"))
    done = subprocess.run(["node", "--test", *tests], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.search(r"(?m)^(?:#|ℹ) pass (\d+)", done.stdout)[1]) > 50
