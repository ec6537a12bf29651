"""One option as data: its dotted path, flag, environment variable, kind, limits and default."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.api.option_sections import OptionMarks

Form = Literal["bool", "int", "float", "str", "choice", "list", "mapping"]


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option.

    Attributes:
        path: `section.name`.
        choices: Allowed values, when there are few.
        limits: Bounds as text, for example `>= 1`.
        optional: Whether None is a value (an empty text on the command line, but for secrets).
        nested: Whether the values of a mapping must be mappings too.
        secret: Whether the value must not be shown.
        aliases: Further names, as flags without dashes in front.
        bare: What the flag means without a value; None: it needs one.
        chooses: Whether the value names plugins of one kind.
    """

    path: str
    kind: Form
    default: Any
    description: str
    optional: bool = False
    choices: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    nested: bool = False
    secret: bool = False
    aliases: tuple[str, ...] = ()
    bare: str | None = None
    chooses: bool = False

    @property
    def section(self) -> str:
        """First part of the path."""
        return self.path.partition(".")[0]

    @property
    def title(self) -> str:
        """The section as flags write it, with dashes."""
        return self.section.replace("_", "-")

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.partition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Flag names without dashes in front: the option's own, then its aliases."""
        return (self.name.replace("_", "-"), *self.aliases)

    @property
    def flag(self) -> str:
        """The flag's main spelling."""
        return "--" + self.names[0]

    @property
    def env(self) -> str:
        """The environment variable."""
        return self.envs[0]

    @property
    def envs(self) -> tuple[str, ...]:
        """The environment variables: the option's own, then those of its aliases."""
        return tuple("CORE_" + name.replace("-", "_").upper() for name in self.names)

    @property
    def pairs(self) -> bool:
        """Whether the value is a mapping whose entries can be written one by one, as `KEY=VALUE`."""
        return self.kind == "mapping" and not self.nested

    def reads(self, text: str) -> bool:
        """Say whether a text can be a value as it is: one of few, or a number; of other kinds nothing is known."""
        if self.choices:
            return text in map(str, self.choices)
        if self.kind not in ("int", "float"):
            return True
        try:
            float(text)
        except ValueError:
            return False
        return True

    @property
    def placeholder(self) -> str:
        """Placeholder of the value in help; empty for a switch."""
        if self.choices:
            return "{" + ",".join(self.choices) + "}"
        if self.chooses or self.kind == "list":
            return "NAME[,NAME]"
        if self.pairs:
            return "KEY=VALUE|JSON"
        return {"bool": "", "int": "N", "float": "X", "mapping": "JSON"}.get(self.kind, "TEXT")

    @property
    def default_text(self) -> str:
        """The default as help shows it; empty where there is nothing to show."""
        return "" if self.default in (None, [], {}) else str(self.default)

    @property
    def allowed(self) -> str:
        """Allowed values, as a phrase for error messages."""
        if self.chooses:
            return "a plugin's name, or several: the first that can serve" if self.kind == "str" else "plugins' names"
        nouns = {
            "bool": "true or false",
            "int": "an integer",
            "float": "a finite number",
            "str": "a text",
            "choice": "one of " + ", ".join(self.choices),
            "list": "names separated by commas",
            "mapping": "a mapping name -> key -> value" if self.nested else "a JSON object, or KEY=VALUE",
        }
        return " ".join([nouns[self.kind], " and ".join(self.limits)]).strip()


def fields_of(section: str, model: type[BaseModel]) -> Iterator[OptionField]:
    """Yield the options of a section, in the order of its model. Raises `TypeError`: one has no command-line form."""
    for name, info in model.model_fields.items():
        yield _field(f"{section}.{name}", info)


def _field(path: str, info: FieldInfo) -> OptionField:
    annotation: Any = info.annotation
    marks = next((mark for mark in info.metadata if isinstance(mark, OptionMarks)), OptionMarks())
    optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        members = get_args(annotation)
        optional = type(None) in members
        annotation = next(member for member in members if member is not type(None))
    return OptionField(
        path=path,
        kind=_kind(path, annotation),
        default=info.get_default(call_default_factory=True),
        description=info.description or "",
        optional=optional,
        choices=get_args(annotation) if get_origin(annotation) is Literal else (),
        limits=tuple(_limits(info)),
        nested=any(get_origin(inner) is dict for inner in get_args(annotation)),
        secret=marks.secret,
        aliases=marks.aliases,
        bare=marks.bare,
    )


def _kind(path: str, annotation: Any) -> Form:
    kinds: dict[Any, Form] = {bool: "bool", int: "int", float: "float", str: "str"}
    origins: dict[Any, Form] = {Literal: "choice", list: "list", dict: "mapping"}
    kind = kinds.get(annotation) or origins.get(get_origin(annotation))
    if kind is None:
        raise TypeError(f"option {path} has type {annotation!r}, which has no command-line form")
    return kind


def _limits(info: FieldInfo) -> list[str]:
    signs = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))
    return [
        f"{sign} {getattr(bound, name):g}"
        if isinstance(getattr(bound, name), float)
        else f"{sign} {getattr(bound, name)}"
        for bound in info.metadata
        for name, sign in signs
        if hasattr(bound, name)
    ] + ["that is not empty" for bound in info.metadata if hasattr(bound, "min_length")]
