"""Values of fields, read from their text: the forms of content of response templates, and their transforms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import regex

Arguments = Mapping[str, Any]

_SECONDS = 0.5
_PLACEHOLDER = regex.compile(r"\{(\w+(?:\.\w+)*)\}")
_BARE_KEY = regex.compile(r"([{,]\s*)(\w+)(?=\s*:)")


def read_content(text: str, content: str, arguments: Arguments) -> Any:
    """Return the value that `text` writes in the form `content`, one of `CONTENTS`.

    Raises:
        ValueError: It writes none.
        TimeoutError: A pattern of the template takes too long over it.
    """
    return CONTENTS[content](text, arguments)


def transformed(transform: Any, scope: Mapping[str, Any]) -> Any:
    """Return `transform` with every text `{a.b}` replaced by what `scope` has there. Raises `ValueError`."""
    if isinstance(transform, Mapping):
        return {key: transformed(value, scope) for key, value in transform.items()}
    if isinstance(transform, list):
        return [transformed(value, scope) for value in transform]
    found = _PLACEHOLDER.fullmatch(transform) if isinstance(transform, str) else None
    if found is None:
        return transform
    value: Any = scope
    for key in found[1].split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise ValueError(f"there is no {found[1]}")
        value = value[key]
    return value


def check_transform(where: str, transform: Any) -> None:
    """Refuse texts that are placeholders in part, because nothing is put together of them. Raises `ValueError`."""
    if isinstance(transform, Mapping | list):
        for value in transform.values() if isinstance(transform, Mapping) else transform:
            check_transform(where, value)
    elif isinstance(transform, str) and _PLACEHOLDER.search(transform) and not _PLACEHOLDER.fullmatch(transform):
        raise ValueError(f"{where}: the transform {transform!r} is a placeholder in part only")


def _text(text: str, arguments: Arguments) -> str:
    return text.strip() if arguments.get("strip", True) else text


def _json(text: str, arguments: Arguments) -> Any:
    """Read JSON, with texts between delimiters of their own and bare keys where the template says so."""
    delimiters = [tuple(map(regex.escape, pair)) for pair in arguments.get("string_delims", ())]
    pieces = [text]
    if delimiters:
        quoted = regex.compile("|".join(f"{opens}(.*?){closes}" for opens, closes in delimiters), regex.DOTALL)
        pieces = ["".join(filter(None, piece)) for piece in _alternating(quoted, text)]
    if arguments.get("unquoted_keys"):
        pieces[::2] = [_BARE_KEY.sub(r'\1"\2"', piece) for piece in pieces[::2]]
    pieces[1::2] = [json.dumps(piece, ensure_ascii=False) for piece in pieces[1::2]]
    try:
        return json.loads("".join(pieces))
    except (ValueError, RecursionError):
        if arguments.get("allow_non_json"):
            return _text(text, arguments)
        raise ValueError("this is no JSON") from None


def _alternating(pattern: regex.Pattern[str], text: str) -> list[tuple[str | None, ...]]:
    """Return what is outside and what is inside the matches' groups, in turn."""
    found: list[tuple[str | None, ...]] = []
    position = 0
    for match in pattern.finditer(text, timeout=_SECONDS):
        found += [(text[position : match.start()],), match.groups()]
        position = match.end()
    return [*found, (text[position:],)]


def _tags(text: str, arguments: Arguments) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for match in regex.finditer(arguments["tag_pattern"], text, flags=regex.DOTALL, timeout=_SECONDS):
        groups = match.groupdict()
        key, value = groups["key"], _inner(groups.get("value") or "", arguments)
        if key in found and arguments.get("merge_duplicates"):
            known = found[key]
            found[key] = [*known, value] if isinstance(known, list) else [known, value]
        else:
            found[key] = value
    return found


def _lines(text: str, arguments: Arguments) -> dict[str, Any]:
    separator, found = arguments.get("kv_sep", ":"), {}
    for line in text.split(arguments.get("line_sep", "\n")):
        key, known, value = _text(line, arguments).partition(separator)
        if known:
            found[_text(key, arguments)] = _inner(_text(value, arguments), arguments)
    return found


def _inner(text: str, arguments: Arguments) -> Any:
    """Read a value inside of `text` by the parser that the template names for values."""
    parser = arguments.get("value_parser")
    return text if parser is None else read_content(text, parser.get("name", "text"), parser.get("args", {}))


CONTENTS: Mapping[str, Callable[[str, Arguments], Any]] = {
    "text": _text,
    "int": lambda text, arguments: int(_text(text, arguments)),
    "float": lambda text, arguments: float(_text(text, arguments)),
    "bool": lambda text, arguments: _text(text, arguments).lower() in ("true", "1"),
    "json": _json,
    "xml-inline": _tags,
    "kv-lines": _lines,
}
"""Forms of content, by the names that templates use."""
