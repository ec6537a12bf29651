"""Every option there is: core's, those that choose plugins of defined kinds, and those of plugins' sections."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from core.api.kinds import Kind
from core.config.dialects import option_of
from core.config.option_field import OptionField, fields_of
from core.config.resolved import Options
from core.config.section import Section
from core.config.sections import plugin_sections
from core.options.names import ALIASES
from core.plugins.defined import defined_kinds
from core.plugins.kinds import KINDS

SECRETS = frozenset({"hub.hf_token", "server.api_key", "server.admin_api_key", "kv.hash_seed"})
"""Options of core's whose values are never printed."""

BARE: Mapping[str, str] = types.MappingProxyType({"hub.hf_token": "true"})
"""Options whose flag may stand without a value, and what it means then."""


@cache
def core_fields() -> tuple[OptionField, ...]:
    """Return every option of core's, in the order of the sections."""
    return tuple(_marked(one) for name, model in core_sections().items() for one in fields_of(name, model))


@cache
def core_sections() -> Mapping[str, Any]:
    """Return the model of every section of core's."""
    return types.MappingProxyType({name: info.annotation for name, info in Options.model_fields.items()})


def _marked(one: OptionField) -> OptionField:
    """Return an option of core's with what the tables above say of it."""
    return replace(
        one,
        secret=one.path in SECRETS,
        aliases=ALIASES.get(one.path, ()),
        bare=BARE.get(one.path),
        chooses=one.section == "select" and any(one.name in kind.options for kind in KINDS.values()),
    )


def option_fields() -> tuple[OptionField, ...]:
    """Return every option in the order of the sections: core's, with those of defined kinds, then those of plugins."""
    return _every()[0]


def fields_by_path() -> Mapping[str, OptionField]:
    """Return `path -> option`."""
    return _every()[1]


def _every() -> tuple[tuple[OptionField, ...], Mapping[str, OptionField]]:
    return _with(tuple(defined_kinds().values()), tuple(_sections()))


def _sections() -> Iterator[Section]:
    """Yield the sections of plugins by name."""
    yield from (section for _, section in sorted(plugin_sections().items()))


@lru_cache(maxsize=4)
def _with(
    kinds: tuple[Kind, ...], sections: tuple[Section, ...]
) -> tuple[tuple[OptionField, ...], Mapping[str, OptionField]]:
    core = core_fields()
    end = max(place for place, field in enumerate(core) if field.section == "select") + 1
    chosen = (_of_kind(kind) for kind in kinds if kind.option)
    fields = (*core[:end], *chosen, *core[end:], *(one for section in sections for one in section.fields))
    return fields, types.MappingProxyType({field.path: field for field in fields})


def _of_kind(kind: Kind) -> OptionField:
    """Return the option that chooses among the plugins of a kind that a plugin defines."""
    path, text = f"select.{kind.option}", kind.help or f"Plugins of the kind {kind.label}."
    if kind.many:
        return OptionField(path, "list", [], text, chooses=True)
    return OptionField(path, "str", None, text, optional=True, chooses=True)


def find_field(name: str) -> OptionField | None:
    """Return the option that a bare name or a dotted path names, spelt with - or _; further names included.

    Where core has none of that name, installed flag dialects are asked for the option that it means.
    """
    section, _, bare = name.replace("_", "-").rpartition(".")
    return _named(section, bare) or _named(section, option_of(bare) or "")


def _named(section: str, bare: str) -> OptionField | None:
    return next((one for one in option_fields() if bare in one.names and section in ("", one.title)), None)


def without_secrets(options: Options) -> dict[str, dict[str, Any]]:
    """Return options as nested plain values, without those that must not be shown."""
    hidden: dict[str, set[str]] = {}
    for field in option_fields():
        if field.secret:
            hidden.setdefault(field.section, set()).add(field.name)
    values: dict[str, dict[str, Any]] = options.complete().model_dump(mode="json", exclude=hidden)
    return values


def section_help() -> Mapping[str, str]:
    """Return the one-line description of every section, in the order of the options."""
    core = {name: (model.__doc__ or name).strip() for name, model in core_sections().items()}
    return types.MappingProxyType({**core, **{section.entry.name: section.help for section in _sections()}})
