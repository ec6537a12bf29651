"""Every option as data: its dotted path, flag, environment variable, kind, limits and default."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from core.api.kinds import Kind
from core.config.dialects import option_of
from core.config.resolved import Options, SelectOptions
from core.plugins.defined import defined_kinds
from core.plugins.kinds import KINDS

Form = Literal["bool", "int", "float", "str", "choice", "list", "mapping"]

ALIASES: Mapping[str, tuple[str, ...]] = types.MappingProxyType(
    {
        "model.hf_overrides": ("config-override",),
        "select.platform": ("device",),
        "select.load_format": ("weight-loader",),
    }
)
"""Further names of core's own, as flags without dashes in front. Those of other servers are known to plugins
(`core.config.dialects`).

They are names everywhere: `--x-y`, `CORE_X_Y`, and in a file `x_y` or `section.x_y`.
"""

SECRETS = frozenset({"hub.hf_token", "server.api_key", "server.admin_api_key", "kv.hash_seed", "tools.mcp_headers"})
"""Options whose values are never printed."""


BARE: Mapping[str, str] = types.MappingProxyType({"hub.hf_token": "true"})
"""Options whose flag may stand without a value, and what it means then."""


@dataclass(frozen=True, slots=True)
class OptionField:
    """One option.

    Attributes:
        path: `section.name`.
        choices: Allowed values, when there are few.
        limits: Bounds as text, for example `>= 1`.
        optional: Whether None is a value (an empty text on the command line, but for secrets).
        nested: Whether the values of a mapping must be mappings too.
    """

    path: str
    kind: Form
    default: Any
    description: str
    optional: bool = False
    choices: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    nested: bool = False

    @property
    def section(self) -> str:
        """First part of the path."""
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.partition(".")[2]

    @property
    def names(self) -> tuple[str, ...]:
        """Flag names without dashes in front: the option's own, then its aliases."""
        return (self.name.replace("_", "-"), *ALIASES.get(self.path, ()))

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
    def secret(self) -> bool:
        """Whether the value must not be shown."""
        return self.path in SECRETS

    @property
    def bare(self) -> str | None:
        """What the flag means without a value; None: it needs one."""
        return BARE.get(self.path)

    @property
    def chooses(self) -> bool:
        """Whether the value names plugins of one kind."""
        mine = any(self.name in kind.options for kind in KINDS.values())
        return self.section == "select" and (mine or self.name not in SelectOptions.model_fields)

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
        """What stands for a value in help; empty for a switch."""
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
        """What values are allowed, as a phrase for error messages."""
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


@cache
def core_fields() -> tuple[OptionField, ...]:
    """Return every option of core's, in the order of the sections."""
    found = []
    for section, holder in Options.model_fields.items():
        for name, info in _section_type(holder).model_fields.items():
            found.append(_field(f"{section}.{name}", info))
    return tuple(found)


def option_fields() -> tuple[OptionField, ...]:
    """Return every option in the order of the sections: core's, and those of the kinds that plugins define."""
    return _with(tuple(defined_kinds().values()))[0]


def fields_by_path() -> Mapping[str, OptionField]:
    """Return `path -> option`."""
    return _with(tuple(defined_kinds().values()))[1]


@lru_cache(maxsize=4)
def _with(kinds: tuple[Kind, ...]) -> tuple[tuple[OptionField, ...], Mapping[str, OptionField]]:
    core = core_fields()
    end = max(place for place, field in enumerate(core) if field.section == "select") + 1
    fields = (*core[:end], *(_of_kind(kind) for kind in kinds if kind.option), *core[end:])
    return fields, types.MappingProxyType({field.path: field for field in fields})


def _of_kind(kind: Kind) -> OptionField:
    """Return the option that chooses among the plugins of a kind that a plugin defines."""
    path, text = f"select.{kind.option}", kind.help or f"Plugins of the kind {kind.label}."
    if kind.many:
        return OptionField(path, "list", [], text)
    return OptionField(path, "str", None, text, optional=True)


def find_field(name: str) -> OptionField | None:
    """Return the option that a bare name or a dotted path names, spelt with - or _; further names included.

    Where core has none of that name, installed flag dialects are asked for the option that it means.
    """
    section, _, bare = name.replace("_", "-").rpartition(".")
    return _named(section, bare) or _named(section, option_of(bare) or "")


def _named(section: str, bare: str) -> OptionField | None:
    return next((one for one in option_fields() if bare in one.names and section in ("", one.section)), None)


def without_secrets(options: Options) -> dict[str, dict[str, Any]]:
    """Return options as nested plain values, without those that must not be shown."""
    hidden: dict[str, set[str]] = {}
    for path in SECRETS:
        section, _, name = path.partition(".")
        hidden.setdefault(section, set()).add(name)
    values: dict[str, dict[str, Any]] = options.model_dump(mode="json", exclude=hidden)
    return values


@cache
def section_help() -> Mapping[str, str]:
    """Return the one-line description of every section."""
    return types.MappingProxyType(
        {name: (_section_type(info).__doc__ or name).strip() for name, info in Options.model_fields.items()}
    )


def _section_type(info: FieldInfo) -> Any:
    return info.annotation


def _field(path: str, info: FieldInfo) -> OptionField:
    annotation: Any = info.annotation
    optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        members = get_args(annotation)
        optional = type(None) in members
        annotation = next(member for member in members if member is not type(None))
    return OptionField(
        path=path,
        kind=_kind(path, annotation),
        default=info.default,
        description=info.description or "",
        optional=optional,
        choices=get_args(annotation) if get_origin(annotation) is Literal else (),
        limits=tuple(_limits(info)),
        nested=any(get_origin(inner) is dict for inner in get_args(annotation)),
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
