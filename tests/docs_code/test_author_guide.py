"""The author guide is true: its files are written, its commands run, in a fresh environment."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # the first to ask for wheels may have to compile the native library
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "plugins" / "author-guide.md"
FENCE = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    return FENCE.findall(GUIDE.read_text(encoding="utf-8"))


def command(environment, line):
    """The words to run; the guide's commands are of these three kinds only."""
    words = shlex.split(line)
    if words[:2] == ["pip", "install"]:
        return [environment.python, "-m", *words, "--quiet", "--no-index"]
    if words[:2] == ["core", "plugins"]:
        return [environment.core, *words[1:]]
    assert words == ["pytest"], f"the guide may not run: {line}"
    return [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def test_the_guides_plugin_is_built_installed_listed_and_tested(environment, tmp_path):
    project = tmp_path / "acme-core-lines"
    written = {name: text for _, name, text in blocks() if name}
    for name, text in written.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    said = {}
    for language, _, text in blocks():
        for line in text.splitlines() if language == "sh" else ():
            done = environment.run(command(environment, line), cwd=project, timeout=120)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            said[line] = done.stdout
    listing = said["core plugins list --kind tool_parsers"]
    assert re.search(r"lines +acme-core-lines +1\.0\.0 +1 +stable +ok", listing)
    assert "CALL " in said["core plugins info lines"]
    assert "0 errors" in said["core plugins doctor lines"]
    assert re.search(r"^24 passed", said["pytest"], re.MULTILINE)


def test_the_links_and_the_named_folders_exist():
    text = GUIDE.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (GUIDE.parent / target).exists(), target
    for folder in re.findall(r"`((?:examples/plugins|plugins)/[\w/]+)`", text):
        assert (ROOT / folder / "pyproject.toml").is_file(), folder
