"""Structural tags as grammars in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from core.api import Tokenizer

_ANY = "/(?s:.)*/"
_RULES = 2000


def special_names(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the ids of the special tokens by their texts."""
    return {name: token for token in sorted(tokenizer.special_ids) if (name := tokenizer.token(token))}


def lark(source: str) -> str:
    """Return a grammar whose masks allow every way to write a text.

    Left to itself the library allows one token alone where the text is certain.
    """
    return f'%llguidance {{"no_forcing": true}}\n{source}\n'


@dataclass(slots=True)
class Lark:
    """A grammar that is being written.

    Attributes:
        special: Special tokens by text: where a tag writes one, the token is meant.
        convert: Turns grammars inside the tag into Lark.
    """

    special: Mapping[str, int]
    convert: Callable[[str], str]
    lines: list[str] = field(default_factory=list)
    further: list[dict[str, Any]] = field(default_factory=list)

    def rule(self, body: str, attributes: str = "") -> str:
        """Add a rule and return its name."""
        if len(self.lines) >= _RULES:
            raise ValueError(f"the structural tag has more than {_RULES} parts")
        name = f"r{len(self.lines)}"
        self.lines.append(f"{name}{attributes}: {body}")
        return name

    def text(self, text: str) -> str:
        """Return an expression for a text in which special tokens are themselves."""
        if not text:
            return '""'
        names = sorted((name for name in self.special if name in text), key=len, reverse=True)
        if not names:
            return json.dumps(text, ensure_ascii=False)
        parts = re.split(f"({'|'.join(map(re.escape, names))})", text)
        spelt = (
            f"<[{self.special[one]}]>" if one in self.special else json.dumps(one, ensure_ascii=False)
            for one in parts
            if one
        )
        return " ".join(spelt)

    def inner(self, grammar: str) -> str:
        """Add a grammar of its own and return an expression for it."""
        name = f"g{len(self.further)}"
        self.further.append({"name": name, "lark_grammar": self.convert(grammar)})
        return f"@{name}"


def tag_grammar(value: Any, grammar: Lark) -> str:
    """Return a structural tag's grammar as the library takes it. Raises `ValueError` for a form that is not known."""
    form = value.get("format") if isinstance(value, dict) else None
    if not isinstance(form, dict):
        raise ValueError("a structural tag is an object with 'format'")
    start = expression(form, grammar)
    source = lark("\n".join([f"start: {start}", *grammar.lines]))
    if not grammar.further:
        return source
    return json.dumps({"grammars": [{"name": "tag", "lark_grammar": source}, *grammar.further]})


def expression(form: Any, grammar: Lark) -> str:
    """Return the expression of a format, its rules added."""
    kind = form.get("type") if isinstance(form, dict) else None
    write = _FORMATS.get(kind) if isinstance(kind, str) else None
    if write is None:
        raise ValueError(f"formats of type {json.dumps(kind)} are not known; known: {', '.join(sorted(_FORMATS))}")
    try:
        return write(form, grammar)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the format of type '{kind}' is not complete: {error}") from error


def _json_schema(form: Mapping[str, Any], grammar: Lark) -> str:
    if form.get("style", "json") != "json":
        raise ValueError(f"json_schema in the style '{form['style']}' is not known here; known: json")
    return grammar.rule("%json " + json.dumps(form["json_schema"]))


def _regex(form: Mapping[str, Any], grammar: Lark) -> str:
    from llguidance import regex_to_lark

    return grammar.rule("/" + regex_to_lark(form["pattern"], use_ascii="") + "/")


def _any_text(form: Mapping[str, Any], grammar: Lark) -> str:
    if form.get("excludes"):
        raise ValueError("'excludes' is not known here")
    return grammar.rule(_ANY)


def _sequence(form: Mapping[str, Any], grammar: Lark) -> str:
    return grammar.rule(" ".join(expression(one, grammar) for one in form["elements"]))


def _or(form: Mapping[str, Any], grammar: Lark) -> str:
    return grammar.rule(" | ".join(expression(one, grammar) for one in form["elements"]))


def _repeated(sign: str) -> Callable[[Mapping[str, Any], Lark], str]:
    return lambda form, grammar: grammar.rule(f"({expression(form['content'], grammar)}){sign}")


def _repeat(form: Mapping[str, Any], grammar: Lark) -> str:
    least, most = int(form["min"]), int(form["max"])
    return grammar.rule(f"({expression(form['content'], grammar)}){{{least},{'' if most < 0 else most}}}")


def _tag(form: Mapping[str, Any], grammar: Lark) -> str:
    return grammar.rule(f"{grammar.text(form['begin'])} {_until(form, grammar)}")


def _until(form: Mapping[str, Any], grammar: Lark) -> str:
    """Return the content of a tag and its end."""
    ends = [form["end"]] if isinstance(form["end"], str) else list(form["end"])
    content = form["content"]
    if content.get("type") == "any_text" and all(ends):
        closing = "|".join(map(_literal, ends))
        return grammar.rule(f"/(?s:.)*?({closing})/", "[lazy]")
    closing = " | ".join(grammar.text(end) for end in ends)
    return grammar.rule(f"{expression(content, grammar)} ({closing})")


def _triggered_tags(form: Mapping[str, Any], grammar: Lark) -> str:
    if form.get("excludes"):
        raise ValueError("'excludes' is not known here")
    tags = [_triggered(tag, form["triggers"], grammar) for tag in form["tags"]]
    first = grammar.rule(" | ".join(expression(tag, grammar) for tag in form["tags"]))
    once, needed = bool(form.get("stop_after_first")), bool(form.get("at_least_one"))
    any_text, tagged = grammar.rule(_ANY), grammar.rule(" | ".join(tags))
    if once:
        return first if needed else grammar.rule(f"{tagged} | {any_text}")
    return grammar.rule(f"{first if needed else ''} ({tagged})* {any_text}".strip())


def _triggered(tag: Mapping[str, Any], triggers: Sequence[str], grammar: Lark) -> str:
    """Return a tag with the text before it: whatever comes up to its trigger."""
    begin = tag["begin"]
    trigger = next((one for one in triggers if one and begin.startswith(one)), None)
    if trigger is None:
        raise ValueError(f"no trigger begins the tag {json.dumps(begin)}")
    rest, content = begin[len(trigger) :], _until(tag, grammar)
    if trigger in grammar.special:
        head = f"{grammar.rule(_ANY)} {grammar.text(trigger)}"
    else:
        head = grammar.rule("/(?s:.)*?" + _literal(trigger) + "/", "[lazy]")
    return grammar.rule(f"{head} {grammar.text(rest) if rest else ''} {content}")


def _tags_with_separator(form: Mapping[str, Any], grammar: Lark) -> str:
    one = grammar.rule(" | ".join(expression(tag, grammar) for tag in form["tags"]))
    more = "" if form.get("stop_after_first") else f" ({grammar.text(form['separator'])} {one})*"
    whole = grammar.rule(f"{one}{more}")
    return whole if form.get("at_least_one") else grammar.rule(f'{whole} | ""')


def _literal(text: str) -> str:
    """Return a pattern for a text; patterns stand on one line, between slashes."""
    return re.escape(text).replace("/", r"\/").replace("\\\n", r"\n").replace("\\\r", r"\r")


_FORMATS: Mapping[str, Callable[[Mapping[str, Any], Lark], str]] = {
    "const_string": lambda form, grammar: grammar.rule(grammar.text(form["value"])),
    "json_schema": _json_schema,
    "regex": _regex,
    "grammar": lambda form, grammar: grammar.rule(grammar.inner(form["grammar"])),
    "any_text": _any_text,
    "sequence": _sequence,
    "or": _or,
    "optional": _repeated("?"),
    "plus": _repeated("+"),
    "star": _repeated("*"),
    "repeat": _repeat,
    "tag": _tag,
    "triggered_tags": _triggered_tags,
    "tags_with_separator": _tags_with_separator,
}
