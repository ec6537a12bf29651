"""Scaffolds: a complete distribution for a plugin of any kind, from templates.

Those of a kind that a plugin defines are where the kind says (`Kind.template`). Those of core's kinds are beside this
file, in the folder that is called like the kind's group.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from core.api import Kind, PluginError

_OWN = "core_plugin_author:templates"
_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_SUFFIX = ".tmpl"
_COMMON = "common"


@dataclass(frozen=True, slots=True)
class Scaffold:
    """A project that was made from templates.

    Attributes:
        folder: The project.
        written: Its files, relative to `folder`.
        use: A command that uses the plugin.
    """

    folder: Path
    dist: str
    written: tuple[str, ...]
    use: str


def scaffold(kind: Kind, name: str, directory: str | Path) -> Scaffold:
    """Write the project `core-plugin-NAME` for a plugin of a kind into `directory`.

    Raises:
        PluginError: CORE-P321, the name is not allowed, there is no template, or the folder exists or cannot be made.
    """
    if not _NAME.fullmatch(name):
        hint = "Use small letters, digits, and single - or _ between them."
        raise PluginError("CORE-P321", f"'{name}' cannot be a plugin's name.", hint=hint)
    source = _templates(kind)
    if source is None:
        raise PluginError("CORE-P321", f"there is no template for {kind.label} ({kind.group}).")
    about = tomllib.loads((source / "about.toml").read_text(encoding="utf-8"))
    words = _words(kind, name, about)
    folder = Path(directory) / words["dist"]
    if folder.exists():
        raise PluginError("CORE-P321", f"{folder} exists already; nothing was written.", hint="Take another name.")
    try:
        written = [
            *_write(_folder(f"{_OWN}/{_COMMON}"), folder, words),
            *_write(source, folder, words),
        ]
    except OSError as error:
        raise PluginError("CORE-P321", f"{folder} cannot be written: {error.strerror or error}.") from error
    return Scaffold(folder, words["dist"], tuple(sorted(written)), words["use"])


def template_groups(kinds: Iterable[Kind]) -> list[str]:
    """Return the groups of the kinds that have a template, in their order."""
    return [kind.group for kind in kinds if _templates(kind) is not None]


def _templates(kind: Kind) -> Traversable | None:
    """Return the folder of a kind's templates, or None."""
    own = kind.group.startswith("core.")
    where = f"{_OWN}/{kind.group.removeprefix('core.')}" if own else kind.template
    found = _folder(where) if where else None
    return found if found is not None and found.is_dir() else None


def _folder(where: str) -> Traversable:
    """Return a folder that is written as `package:folder`."""
    package, _, folder = where.partition(":")
    return files(package) / folder


def _words(kind: Kind, name: str, about: dict[str, str | list[str]]) -> dict[str, str]:
    """Return what the templates' placeholders stand for."""
    plain = name.replace("-", "_")
    words = {
        "name": name,
        "plain": plain,
        "package": f"core_plugin_{plain}",
        "dist": f"core-plugin-{name.replace('_', '-')}",
        "constant": plain.upper(),
        "cls": "".join(part.capitalize() for part in plain.split("_")),
        "group": kind.group,
        "kind": kind.label,
        "dependencies": "".join(f'\n    "{one}",' for one in about.get("dependencies", [])),
        "value": "hooks" if kind.group == "core.plugins" else f"manifest:{plain.upper()}",
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
