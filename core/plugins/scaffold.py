"""Scaffolds: a complete distribution for a plugin of any kind, from the templates beside this file."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from core.api.errors import PluginError
from core.api.kinds import Kind
from core.plugins.kinds import every_kind, kind_of

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_SUFFIX = ".tmpl"
_COMMON = "common"


@dataclass(frozen=True, slots=True)
class Scaffold:
    """What was made.

    Attributes:
        folder: The project.
        written: Its files, relative to `folder`.
        use: A command that uses the plugin.
    """

    folder: Path
    dist: str
    written: tuple[str, ...]
    use: str


def scaffold(group: str, name: str, directory: str | Path) -> Scaffold:
    """Write the project `core-plugin-NAME` for a plugin of `group` into `directory`.

    Raises:
        PluginError: CORE-P321, the name is not allowed, there is no template, or the folder exists or cannot be made.
    """
    if not _NAME.fullmatch(name):
        hint = "Use small letters, digits, and single - or _ between them."
        raise PluginError("CORE-P321", f"'{name}' cannot be a plugin's name.", hint=hint)
    source = _templates(kind_of(group))
    if source is None:
        raise PluginError("CORE-P321", f"there is no template for {kind_of(group).label} ({group}).")
    about = tomllib.loads((source / "about.toml").read_text(encoding="utf-8"))
    words = _words(group, name, about)
    folder = Path(directory) / words["dist"]
    if folder.exists():
        raise PluginError("CORE-P321", f"{folder} exists already; nothing was written.", hint="Take another name.")
    try:
        written = [
            *_write(files("core.plugins") / "templates" / _COMMON, folder, words),
            *_write(source, folder, words),
        ]
    except OSError as error:
        raise PluginError("CORE-P321", f"{folder} cannot be written: {error.strerror or error}.") from error
    return Scaffold(folder, words["dist"], tuple(sorted(written)), words["use"])


def template_groups() -> list[str]:
    """Return the groups that have a template, in the order of the kinds."""
    return [group for group, kind in every_kind().items() if _templates(kind) is not None]


def _templates(kind: Kind) -> Traversable | None:
    """Return the folder of a kind's templates, or None."""
    package, _, folder = kind.template.partition(":")
    found = files(package) / folder if package else None
    return found if found is not None and found.is_dir() else None


def _words(group: str, name: str, about: dict[str, str | list[str]]) -> dict[str, str]:
    """Return what the templates' placeholders stand for."""
    plain = name.replace("-", "_")
    words = {
        "name": name,
        "plain": plain,
        "package": f"core_plugin_{plain}",
        "dist": f"core-plugin-{name.replace('_', '-')}",
        "constant": plain.upper(),
        "cls": "".join(part.capitalize() for part in plain.split("_")),
        "group": group,
        "kind": kind_of(group).label,
        "dependencies": "".join(f'\n    "{one}",' for one in about.get("dependencies", [])),
        "value": "hooks" if group == "core.plugins" else f"manifest:{plain.upper()}",
    }
    for key in ("summary", "use", "about"):
        words[key] = Template(str(about[key])).substitute(words).strip()
    return words


def _write(source: Traversable, folder: Path, words: dict[str, str]) -> list[str]:
    """Fill in the templates of one folder and return the paths of the files, relative to `folder`."""
    written = []
    for template in source.iterdir():
        if not template.name.endswith(_SUFFIX):
            continue
        place = _place(template.name.removesuffix(_SUFFIX), words)
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(template.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
        written.append(place)
    return written


def _place(name: str, words: dict[str, str]) -> str:
    plain = words["name"].replace("-", "_")
    if name in ("pyproject.toml", "README.md", ".gitignore"):
        return name
    if name == "tests.py":
        return f"tests/test_{plain}.py"
    if name == "package_tests.py":
        return f"tests/test_{plain}_package.py"
    return f"src/{words['package']}/{name}"
