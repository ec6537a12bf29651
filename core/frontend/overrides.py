"""Options from keyword arguments: `LLM(model, dtype="float32", max_num_seqs=4)`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core.api.errors import ConfigError
from core.config.dialects import lead
from core.config.fields import find_field, option_fields
from core.config.load import build
from core.config.option_field import OptionField
from core.config.resolved import Options
from core.config.settings import Key, Setting, merge
from core.suggest import nearest


def options_with(base: Options | None, overrides: Mapping[str, Any]) -> Options:
    """Return `base` (or the defaults) with options set by their bare names, or by the names other engines use.

    Raises:
        ConfigError: CORE-C130 an option of that name does not exist, CORE-C101 a value is not allowed.
    """
    layers = [dict(_given(base)) if base is not None else {}, dict(_named(overrides))]
    return build(merge(layers)).options


def _given(base: Options) -> Iterator[tuple[Key, Setting]]:
    for field in option_fields():
        value = getattr(getattr(base, field.section), field.name)
        yield from Setting(field, value, "options", f"option {field.path}").spread()


def _named(overrides: Mapping[str, Any]) -> Iterator[tuple[Key, Setting]]:
    known = _names()
    for name, value in overrides.items():
        field = known.get(name) or (find_field(name) if "." not in name else None)
        if field is None:
            hint = nearest(name, known) or "`core config show` lists all options."
            raise ConfigError("CORE-C130", f"there is no option '{name}'.", hint=f"{hint} {lead()}".rstrip())
        yield from Setting(field, value, "argument", f"argument {name}").spread()


def _names() -> dict[str, OptionField]:
    return {name.replace("-", "_"): field for field in option_fields() for name in field.names}
