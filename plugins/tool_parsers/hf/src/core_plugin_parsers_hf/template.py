"""Response templates, version 1: what the fields of a message look like in a model's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import regex
from core_plugin_parsers.json_object import ObjectKeys

from core.api import CheckpointError
from core_plugin_parsers_hf.anchors import Anchor
from core_plugin_parsers_hf.content import CONTENTS, check_transform

_TOP = frozenset({"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"})
_FIELD = frozenset(
    {
        "open",
        "open_pattern",
        "close",
        "close_pattern",
        "content",
        "content_args",
        "repeats",
        "join",
        "optional",
        "transform",
        "transform_each",
    }
)


class Holds(Enum):
    """Role of a message's field in an answer."""

    TEXT = "content"
    REASONING = "reasoning"
    CALLS = "tool_calls"
    NOTHING = "anything else"


_NAMES = {"content": Holds.TEXT, "tool_calls": Holds.CALLS} | dict.fromkeys(
    ("reasoning", "reasoning_content", "thinking"), Holds.REASONING
)


@dataclass(frozen=True)
class Field:
    """A field of the message.

    Attributes:
        opens, closes: Its delimiters; the one field without `opens` is where the text is outside all others.
        content, arguments: How what it holds is written.
        transform: What is made of it; of each item of a list if `each`.
        join: What stands between its texts if it comes several times.
    """

    name: str
    opens: Anchor | None
    closes: Anchor | None
    holds: Holds
    content: str = "text"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    transform: Any = None
    each: bool = False
    join: str = ""

    @property
    def strips(self) -> bool:
        """Whether white space at the edges of a text belongs to the format."""
        return bool(self.arguments.get("strip", True))

    @cached_property
    def keys(self) -> ObjectKeys | None:
        """Where name and arguments stand in plain JSON, which can then be passed on while it arrives."""
        named = self.opens is not None and self.opens.pattern.groupindex
        if self.content != "json" or self.arguments or named:
            return None
        if self.transform is None:
            return ObjectKeys()
        root = "" if self.each else "content."
        function = self.transform.get("function", self.transform) if isinstance(self.transform, Mapping) else {}
        paths = [function.get(key) for key in ("name", "arguments")] if isinstance(function, Mapping) else [None]
        found = [path[1 + len(root) : -1] for path in paths if isinstance(path, str) and path.startswith("{" + root)]
        if len(found) != 2 or any("." in key or not key for key in found):
            return None
        return ObjectKeys(name=(found[0],), arguments=(found[1],))


@dataclass(frozen=True)
class Template:
    """A message's format.

    Attributes:
        begins: What stands in front of the message in the prompt.
        fields: Those that begin with a delimiter.
        outside: The field that the text is outside of these; without one it is seen by nobody.
    """

    begins: Anchor
    fields: tuple[Field, ...]
    outside: Field | None

    def only(self, reads: frozenset[str]) -> Template:
        """Return the format with what is not to be read as text."""
        parts = {"tools": Holds.CALLS, "reasoning": Holds.REASONING}
        left_out = {holds for name, holds in parts.items() if name not in reads}
        fields = tuple(one for one in self.fields if one.holds not in left_out)
        outside = self.outside
        if outside is not None and outside.holds in left_out:
            outside = replace(outside, holds=Holds.TEXT)
        return replace(self, fields=fields, outside=outside)


def load_template(data: Any) -> Template:
    """Return the format that a tokenizer's `response_template` describes.

    Raises:
        CheckpointError: CORE-M145, it describes none.
    """
    try:
        return _template(data)
    except (ValueError, regex.error) as error:
        raise CheckpointError(
            "CORE-M145",
            f"the checkpoint's response_template cannot be used: {error}.",
            hint="Name the format with --tool-parser and --reasoning-parser, or correct tokenizer_config.json.",
        ) from error


def _template(data: Any) -> Template:
    _check_object("response_template", data, _TOP)
    if data.get("version", 1) != 1:
        raise ValueError(f"version {data['version']!r} is not 1")
    given = data.get("fields")
    if not isinstance(given, Mapping) or not given:
        raise ValueError("it has no fields")
    begins = _anchor("response_template", data, "start_anchor")
    if begins is None:
        raise ValueError("it says neither start_anchor nor start_anchor_pattern")
    fields = [_field(name, one) for name, one in given.items()]
    outside = [one for one in fields if one.opens is None]
    if len(outside) > 1:
        raise ValueError(f"fields {', '.join(one.name for one in outside)} have no beginning, which only one may lack")
    return Template(begins, tuple(one for one in fields if one.opens is not None), outside[0] if outside else None)


def _field(name: str, data: Any) -> Field:
    _check_object(f"field '{name}'", data, _FIELD)
    content, arguments = data.get("content", "text"), data.get("content_args", {})
    if content not in CONTENTS or not isinstance(arguments, Mapping):
        raise ValueError(f"field '{name}': content {content!r} is none of {', '.join(sorted(CONTENTS))}")
    transform, each, join = data.get("transform"), data.get("transform_each", False), data.get("join")
    check_transform(f"field '{name}'", transform)
    if each and transform is None:
        raise ValueError(f"field '{name}': transform_each without a transform")
    if join is not None and not (isinstance(join, str) and data.get("repeats")):
        raise ValueError(f"field '{name}': join must be a text, of a field that repeats")
    return Field(
        name,
        _anchor(f"field '{name}'", data, "open"),
        _anchor(f"field '{name}'", data, "close"),
        _NAMES.get(name, Holds.NOTHING),
        content,
        arguments,
        transform,
        bool(each),
        join or "",
    )


def _check_object(where: str, data: Any, known: frozenset[str]) -> None:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where} is no object")
    if unknown := sorted(map(str, data.keys() - known)):
        raise ValueError(f"{where} has unknown keys {', '.join(unknown)}")


def _anchor(where: str, data: Mapping[str, Any], key: str) -> Anchor | None:
    """Return the delimiter that is given as literals under `key`, or as a pattern."""
    literals, pattern = data.get(key), data.get(f"{key}_pattern")
    if pattern is None and literals is None:
        return None
    if literals is None and isinstance(pattern, str):
        return Anchor.of_pattern(pattern)
    texts: Sequence[Any] = [literals] if isinstance(literals, str) else literals if isinstance(literals, list) else []
    if pattern is not None or not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError(f"{where}: '{key}' must be a text or several, or '{key}_pattern' a pattern, and not both")
    return Anchor.of_literals(texts)
