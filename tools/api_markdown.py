"""Definitions of an interface as Markdown: docstrings with Google's sections become tables and lists, names links."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from api_source import Definition, Member

Linked = Callable[[str], str | None]
"""Returns the address of a public name (`Name` or `Name.member`) as seen from the page; None for what is none."""

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples):$")
_ENTRY = re.compile(r"^ {4}([\w*][\w*, ]*): (.*)$")
_CODE = re.compile(r"(`[^`]+`)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Docstring:
    """A docstring in its parts.

    Attributes:
        text: Everything outside of the sections.
        sections: Section -> `(names, text)` of every entry; `Returns` and `Yields` have one without names.
        example: Lines of the example.
    """

    text: str
    sections: Mapping[str, list[tuple[str, str]]]
    example: str = ""


def parse(doc: str) -> Docstring:
    """Read a docstring whose indentation was taken away."""
    text: list[str] = []
    sections: dict[str, list[tuple[str, str]]] = {}
    example: list[str] = []
    section = ""
    for line in doc.splitlines():
        if found := _SECTION.match(line):
            section = found[1]
            sections.setdefault(section, [])
        elif section and (line.startswith("    ") or not line.strip()):
            if section.startswith("Example"):
                example.append(line[4:])
            elif line.strip():
                _take(section, line, sections[section])
        else:
            section = ""
            text.append(line)
    return Docstring("\n".join(text).strip(), sections, "\n".join(example).strip())


def _take(section: str, line: str, entries: list[tuple[str, str]]) -> None:
    """Add a line of a section: it begins an entry, or goes on with the last one."""
    found = None if section in ("Returns", "Yields") else _ENTRY.match(line)
    if found:
        entries.append((found[1], found[2]))
    elif entries:
        names, text = entries[-1]
        entries[-1] = (names, f"{text} {line.strip()}")
    else:
        entries.append(("", line.strip()))


def summary(doc: str) -> str:
    """Return the first sentence of a docstring."""
    first = " ".join(parse(doc).text.partition("\n\n")[0].split())
    found = re.match(r"(.+?(?<!e\.g)[.?!])(?= [A-Z`]|$)", first)
    return found[1] if found else first


def prose(text: str, linked: Linked, cell: bool = False) -> str:
    """Return text with links at the public names in it, for a paragraph or for a cell of a table."""
    if cell:
        text = " ".join(text.split())
    parts = [
        _linked_code(" ".join(part[1:-1].split()), linked) if part.startswith("`") else part.replace("<", "&lt;")
        for part in _CODE.split(text)
    ]
    joined = "".join(parts)
    return joined.replace("|", "\\|") if cell else joined


def _linked_code(code: str, linked: Linked) -> str:
    bare = code.removeprefix("core.api.").removeprefix("core.").partition("(")[0]
    address = linked(bare) if re.fullmatch(r"[A-Za-z_][\w.]*", bare) else None
    return f"[`{code}`]({address})" if address else f"`{code}`"


def type_cell(text: str, linked: Linked) -> str:
    """Return a type for a cell: code, a link if one of its names is public, links behind it if several are."""
    if not text:
        return ""
    code = f"`{text}`".replace("|", "\\|")
    found = names_in([text], linked)
    if len(found) == 1:
        return f"[{code}]({linked(found[0])})"
    return code if not found else f"{code} ({', '.join(f'[`{name}`]({linked(name)})' for name in found)})"


def names_in(types: Sequence[str], linked: Linked) -> list[str]:
    """Return the public names in annotations, each once, in their order."""
    words = (word for text in types for word in _NAME.findall(re.sub(r"'[^']*'", "", text)))
    return list(dict.fromkeys(word for word in words if word[0].isupper() and linked(word)))


def item(one: Definition, linked: Linked, note: str) -> Iterator[str]:
    """Yield the lines of a definition, its heading first.

    Args:
        note: What is said right below the heading: kind, and how it is imported.
    """
    yield from (f"### `{one.name}`", "", note, "")
    doc = parse(one.doc)
    yield from _text(doc, linked)
    if one.kind == "function":
        yield from _function(one.name, one.signature, doc, linked)
        return
    if one.value:
        yield from ("```python", f"{one.name} = {one.value}", "```", "")
    constructor = next((member for member in one.members if member.name == "__init__"), None)
    attributes = [member for member in one.members if member.kind != "method"]
    yield from _attributes(attributes, doc, linked)
    if constructor:
        call = constructor.signature.replace("def __init__", one.name, 1)
        own = parse(constructor.doc)
        yield from _text(own, linked)
        sections = {**doc.sections, **own.sections}
        yield from _function(one.name, call, Docstring("", sections, ""), linked, skip=one.name)
    else:
        yield from _lists(doc, linked)
    for member in one.members:
        if member.kind == "method" and member is not constructor:
            yield from _member(one, member, linked)


def _member(owner: Definition, member: Member, linked: Linked) -> Iterator[str]:
    yield from (f"#### `{owner.name}.{member.name}`", "")
    doc = parse(member.doc)
    yield from _function(member.name, member.signature, doc, linked, skip=owner.name, before=_text(doc, linked))


def _function(
    name: str, signature: str, doc: Docstring, linked: Linked, *, skip: str = "", before: Iterator[str] | None = None
) -> Iterator[str]:
    marks = re.findall(r"@(\w+) ", signature)
    plain = re.sub(r"@\w+ ", "", signature)
    yield from ("```python", *(f"@{mark}" for mark in marks), *plain.splitlines(), "```", "")
    yield from before or ()
    yield from _lists(doc, linked)
    found = [name for name in names_in([plain.partition("(")[2]], linked) if name != skip]
    if found:
        yield from (f"Types: {', '.join(f'[`{name}`]({linked(name)})' for name in found)}", "")


def _text(doc: Docstring, linked: Linked) -> Iterator[str]:
    if doc.text:
        yield from (prose(doc.text, linked), "")
    if doc.example:
        yield from ("```python", doc.example, "```", "")


def _attributes(members: Sequence[Member], doc: Docstring, linked: Linked) -> Iterator[str]:
    """Yield a table of the fields and properties; those that share a sentence share a row."""
    told = {
        name.strip(): (names, text) for names, text in doc.sections.get("Attributes", ()) for name in names.split(",")
    }
    if not members and not told:
        return
    with_default = any(member.default for member in members)
    yield from (f"| attribute | type |{' default |' if with_default else ''} meaning |",)
    yield f"|---|---|{'---|' if with_default else ''}---|"
    rows: dict[str, tuple[list[Member], str]] = {}
    for member in members:
        names, text = told.get(member.name, (member.name, prose_of(member)))
        rows.setdefault(names, ([], text))[0].append(member)
    known = {member.name for member in members}
    for names, text in doc.sections.get("Attributes", ()):
        if not known & {name.strip() for name in names.split(",")}:
            rows[names] = ([Member(name.strip(), "field") for name in names.split(",")], text)
    for found, text in rows.values():
        names = ", ".join(f"`{member.name}`" for member in found)
        types = ", ".join(dict.fromkeys(type_cell(member.type, linked) for member in found if member.type))
        defaults = ", ".join(dict.fromkeys(_code(member.default) for member in found if member.default))
        middle = f" {defaults} |" if with_default else ""
        yield f"| {names} | {types} |{middle} {prose(text, linked, cell=True)} |"
    yield ""


def prose_of(member: Member) -> str:
    """Return what a property's own docstring says, without sections."""
    return parse(member.doc).text


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _lists(doc: Docstring, linked: Linked) -> Iterator[str]:
    for section, title in (("Args", "Arguments"), ("Returns", "Returns"), ("Yields", "Yields"), ("Raises", "Raises")):
        entries = doc.sections.get(section, [])
        if not entries:
            continue
        yield from (f"**{title}**", "")
        for names, text in entries:
            words = [word.strip() for word in names.split(",") if word.strip()]
            shown = ", ".join(_linked_code(word, linked) for word in words)
            yield f"- {shown}: {prose(text, linked)}" if shown else f"- {prose(text, linked)}"
        yield ""
