"""Write docs/reference/*.md: every public name of `core` and `core.api`, from sources and docstrings.

A page for each kind of plugin, one for what all kinds share, one for `core` itself, and a list of all names. With
`--check` nothing is written: exit status 1 and a short difference mean that a page is stale.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from api_markdown import Linked, item, prose, summary
from api_operations import operations
from api_pages import PAGES, Page, Reference, collect
from api_source import ROOT, Definition, read

import core
import core.api
from core.api.descriptors import DESCRIPTORS
from core.plugins.contracts import IMPLEMENTATIONS

_FOLDER = "docs/reference"
_SHOWN_LINES = 20
_HEAD = "Written by `tools/api_reference.py` from the sources of `{package}`; do not edit."


def render(found: Reference) -> dict[str, str]:
    """Return every page by its file name."""
    pages = {f"{page.name}.md": "\n".join(_of_kind(page, found)) for page in PAGES}
    pages["core.md"] = "\n".join(_core(found))
    pages["README.md"] = "\n".join(_index(found))
    return {name: f"{text.rstrip()}\n" for name, text in pages.items()}


def _of_kind(page: Page, found: Reference) -> Iterator[str]:
    def linked(name: str) -> str | None:
        return found.link(name, page.name)

    yield from (f"# {page.title}", "", _HEAD.format(package="core.api"), "")
    if page.name != "shared":
        yield from (f"How to write one: [{page.name}](../plugins/kinds/{page.name}.md), with an example.", "")
    for module in page.modules:
        if page.name != "shared":
            yield from (prose(read(f"core.api.{module}").doc, linked), "")
    for title, members in _sections(page, found).items():
        if members:
            yield from (f"## {title}", "")
            for one in members:
                yield from item(one, linked, _note(one, linked))
    if page.name == "kernels":
        yield from operations(ROOT)


def _sections(page: Page, found: Reference) -> dict[str, list[Definition]]:
    """Return a page's definitions by what they are to the author of a plugin."""
    descriptor = DESCRIPTORS.get(page.group)
    contract = IMPLEMENTATIONS.get(page.group)
    paths = (contract.protocol, *contract.optional) if contract else ()
    written = {path.partition(":")[2] for path in paths} | page.written
    titles = ("Descriptor entry", "What a plugin implements", "Optional parts", "Hook specifications")
    sections: dict[str, list[Definition]] = {title: [] for title in titles}
    sections |= {"What core passes, and data": [], "Functions and constants": []}
    for one in found.pages[page.name]:
        optional = one.doc.startswith(("Optional part", "A source that"))
        if descriptor and one.name == descriptor.__name__:
            title = "Descriptor entry"
        elif one.name.startswith("core_"):
            title = "Hook specifications"
        elif one.name in written:
            title = "Optional parts" if optional else "What a plugin implements"
        elif one.kind in ("function", "constant"):
            title = "Functions and constants"
        else:
            title = "Optional parts" if optional else "What core passes, and data"
        sections[title].append(one)
    return sections


def _note(one: Definition, linked: Linked) -> str:
    """Return the line below a heading: what it is and how it is imported."""
    package = "core.api" if one.name in core.api.__all__ else one.module
    bases = [f"`{base}`" if not linked(base) else f"[`{base}`]({linked(base)})" for base in one.bases]
    extends = f", extends {', '.join(bases)}" if bases else ""
    if one.name.startswith("core_"):
        return "Hook: a plugin's module has a function of this name, marked with `@hookimpl`."
    return f"{one.kind.capitalize()}{extends}. `from {package} import {one.name}`"


def _core(found: Reference) -> Iterator[str]:
    def linked(name: str) -> str | None:
        return found.link(name, "core")

    yield from ("# `core`", "", _HEAD.format(package="core"), "")
    yield from ("Offline use and serving from Python. `core` loads these names when they are first used.", "")
    public = [one for one in found.pages["core"] if one.name in core.__all__]
    yield from ("## Public names", "")
    for one in public:
        yield from item(one, linked, f"{one.kind.capitalize()}. `from core import {one.name}`")
    yield from ("## Results and parameters", "", "What the names above return or take.", "")
    for one in found.pages["core"]:
        if one not in public:
            yield from item(one, linked, f"{one.kind.capitalize()} of `{one.module}`.")


def _index(found: Reference) -> Iterator[str]:
    yield from ("# Reference", "", _HEAD.format(package="core` and `core.api"), "")
    yield "Every public name, with signature and docstring. How plugins are written is in the [author"
    yield "guide](../plugins/author-guide.md) and on [a page per kind](../plugins/kinds/README.md). Types without a"
    yield "link are Python's, numpy's, torch's, or core's own."
    yield from ("", "| page | entry-point group | names |", "|---|---|---|")
    yield f"| [core](core.md) | | {len(found.pages['core'])} |"
    for page in PAGES:
        group = "" if page.name == "shared" else f"`{page.group}`"
        yield f"| [{page.name}]({page.name}.md) | {group} | {len(found.pages[page.name])} |"
    yield from ("", "## All names", "", "| name | page | what it is |", "|---|---|---|")
    every = [(one, name) for name, page in found.pages.items() for one in page]
    for one, page in sorted(every, key=lambda row: (row[0].name.lower(), row[0].name)):
        text = prose(summary(one.doc), lambda name: None, cell=True)
        yield f"| [`{one.name}`]({found.link(one.name, '')}) | {page} | {text} |"


def main(arguments: list[str] | None = None, folder: Path = ROOT / _FOLDER) -> int:
    """Write or check the pages and return the exit status."""
    parser = argparse.ArgumentParser(description="Write docs/reference/*.md from the sources of core.")
    parser.add_argument("--check", action="store_true", help="only say whether the pages are up to date")
    check = parser.parse_args(arguments).check
    pages = render(collect())
    there = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    if not check:
        folder.mkdir(parents=True, exist_ok=True)
        for name in there.keys() - pages.keys():
            (folder / name).unlink()
        for name, text in pages.items():
            (folder / name).write_text(text, encoding="utf-8")
        return 0
    stale = [name for name in sorted(pages.keys() | there.keys()) if pages.get(name) != there.get(name)]
    for name in stale[:1]:
        old, new = there.get(name, "").splitlines(), pages.get(name, "").splitlines()
        print(f"{_FOLDER}/{name} is stale: run `python tools/api_reference.py`.")
        lines = difflib.unified_diff(old, new, f"{_FOLDER}/{name}", "now", lineterm="", n=0)
        print("\n".join(islice(lines, _SHOWN_LINES)))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
