"""Options from flags, environment and file, with the source of every value."""

from __future__ import annotations

import argparse
import json
import math
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from core.api.errors import ConfigError
from core.config.dialects import spelled
from core.config.environment import further_variables
from core.config.fields import fields_by_path, option_fields
from core.config.file import read_file
from core.config.flags import FlagValue, split_list
from core.config.option_field import OptionField
from core.config.resolved import Options
from core.config.section_values import given_sections
from core.config.settings import Key, Setting, merge
from core.config.sizes import parse_size, without_unit

AUTO: Mapping[str, str | None] = types.MappingProxyType({"model.max_model_len": "-1", "select.load_format": None})
"""Options that may be `auto`, where that is no value of their type, and what it means."""

WITH_UNITS = frozenset({"model.max_model_len", "scheduler.max_num_batched_tokens", "kv.kv_memory"})
"""Options whose numbers may have a unit: 8k is 8000, 8K is 8192."""


@dataclass(frozen=True, slots=True)
class LoadedOptions:
    """Options and where each value came from.

    Attributes:
        sources: Dotted path -> `flag`, `env CORE_X`, `file PATH` or `default`. Options of plugins that were given
            have entries of their own (`runtime.plugin_options.NAME.KEY`).
    """

    options: Options
    sources: dict[str, str]

    def given(self) -> dict[str, Any]:
        """Return the values that somebody set, by bare option name, without the server's: arguments for `LLM`."""
        set_by_user = {path for path, source in self.sources.items() if source != "default"}
        return {
            field.name: getattr(getattr(self.options, field.section), field.name)
            for field in option_fields()
            if field.section != "server" and any(f"{path}.".startswith(f"{field.path}.") for path in set_by_user)
        }


def load_options(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> LoadedOptions:
    """Return the options that the command line, `CORE_*` variables, the file and the defaults give together.

    Args:
        args: Parsed with the flags of `core.config.flags.add_option_flags`.
        environ: Instead of `os.environ`.

    Raises:
        ConfigError: A value is not allowed (CORE-C101), a file's key is unknown (C102), the file cannot be read
            (C103), two variables contradict each other (C109). Every bad value is named with its flag, variable or
            key.
    """
    environ = os.environ if environ is None else environ
    path = getattr(args, "config", None) or environ.get("CORE_CONFIG")
    layers = [
        read_file(path) if path else {},
        dict(_from_environment(environ)),
        dict(_from_flags(args)),
        dict(_from_plugin_flags(getattr(args, "opt", None) or [])),
    ]
    return build(merge(layers))


def build(settings: Mapping[Key, Setting]) -> LoadedOptions:
    """Validate settings into options."""
    settings = {key: _joined(setting) for key, setting in settings.items()}
    problems = [problem for setting in settings.values() if (problem := _check(setting))]
    if problems:
        raise _refusal(problems)
    document = _nest(settings)
    for name, values in given_sections(document):
        if isinstance(values, ValidationError):
            raise _refusal([_explain_own(settings, name, detail) for detail in values.errors()])
        document[name] = values
    try:
        options = Options.model_validate(document)
    except ValidationError as error:
        raise _refusal([_explain(settings, detail["loc"]) for detail in error.errors()]) from None
    sources = {field.path: "default" for field in option_fields()}
    sources.update({".".join(key): setting.source for key, setting in settings.items()})
    return LoadedOptions(options, sources)


def _explain_own(settings: Mapping[Key, Setting], section: str, detail: ErrorDetails) -> str:
    """Return what is wrong with a value of a plugin's section, or with several together, as its model says."""
    if not detail["loc"]:
        return f"section {section}: {detail['msg'].removeprefix('Value error, ')}"
    return _explain(settings, (section, *detail["loc"]))


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Key, Setting]]:
    further = further_variables(environ)
    for field in option_fields():
        names = (*field.envs, *further.get(field.path, ()))
        given = [name for name in names if environ.get(name) or (field.secret and name in environ)]
        if len({environ[name] for name in given}) > 1:
            text = f"variables {' and '.join(given)} set one option to different values."
            raise ConfigError("CORE-C109", text, hint=f"Keep {field.env}.")
        for name in given[:1]:
            label = f"variable {name}"
            value = _from_text(field, environ[name], label)
            yield from Setting(field, value, f"env {name}", label).spread()


def _from_flags(args: argparse.Namespace) -> Iterator[tuple[Key, Setting]]:
    for path, given in vars(args).items():
        field = fields_by_path().get(path)
        if field is not None and isinstance(given, FlagValue):
            label = f"flag {given.flag}" if given.flag.startswith("-") else f"argument {given.flag}"
            value = _from_text(field, given.value, label)
            yield from Setting(field, value, "flag", label).spread()


def _from_plugin_flags(texts: list[str]) -> Iterator[tuple[Key, Setting]]:
    field = fields_by_path()["runtime.plugin_options"]
    for text in texts:
        target, equals, raw = text.partition("=")
        name, dot, key = target.partition(".")
        if not (equals and dot and name and key):
            raise ConfigError(
                "CORE-C106", f"flag --opt: {text!r} is not NAME.KEY=VALUE.", hint="Example: --opt hermes.strict=true"
            )
        yield from Setting(field, {name: {key: _json_or_text(raw)}}, "flag", "flag --opt").spread()


def _from_text(field: OptionField, raw: Any, label: str) -> Any:
    """Return what a raw text means; pydantic turns scalars into their types later."""
    if field.pairs and isinstance(raw, list):
        return _entries([_from_text(field, text, label) for text in raw])
    if not isinstance(raw, str):
        return raw
    # An empty key is a variable that somebody forgot to set: the server must not be open because of it.
    if raw == "" and field.optional and not field.secret:
        return None
    if field.kind == "list":
        return split_list(raw)
    if field.kind == "mapping":
        key, equals, value = raw.partition("=")
        if field.pairs and equals and key.strip().isidentifier():
            return {key.strip(): _json_or_text(value)}
        try:
            return _json(raw)
        except ValueError as error:
            raise _refusal([f"{label}: {raw!r} is not JSON ({error})"]) from None
    return raw


def _entries(parts: Sequence[Any]) -> Any:
    """Return one mapping of several, of which later ones win; the first part that is none, for it to be refused."""
    wrong = [part for part in parts if part is not None and not isinstance(part, Mapping)]
    return wrong[0] if wrong else {key: value for part in parts for key, value in (part or {}).items()}


def _json_or_text(raw: str) -> Any:
    try:
        return _json(raw)
    except ValueError:
        return raw


def _json(raw: str) -> Any:
    # Options travel to the engine as JSON, which has no NaN or Infinity.
    return json.loads(raw, parse_constant=lambda name: _raise(ValueError(f"{name} is not a JSON number")))


def _raise(error: Exception) -> NoReturn:
    raise error


def _joined(setting: Setting) -> Setting:
    """Return the value as core writes it: names in order of preference, a list in a file, as a flag would have them."""
    field, value = setting.field, setting.value
    if not field.chooses or field.kind != "str" or not isinstance(value, (list, tuple)):
        return replace(setting, value=_read(field, value))
    return replace(setting, value=",".join(value)) if all(isinstance(one, str) for one in value) else setting


def _read(field: OptionField, value: Any) -> Any:
    """Return a text as core writes it: numbers without units, names of values as they are core's."""
    if not isinstance(value, str):
        return value
    if value == "auto" and field.path in AUTO:
        return AUTO[field.path]
    text = without_unit(value) if field.path in WITH_UNITS else value
    return text if field.reads(text) else spelled(field.path, text)


def _check(setting: Setting) -> str | None:
    """Return what is wrong with a value that pydantic would let pass."""
    field, value = setting.field, setting.value
    if field.kind in ("int", "float") and isinstance(value, bool):
        return setting.refuse()
    if field.kind == "float" and _infinite(value):
        return setting.refuse()
    if field.chooses and not (field.optional and value is None):
        fits = isinstance(value, list) if field.kind == "list" else isinstance(value, str)
        return None if fits else setting.refuse()
    if field.path == "kv.kv_memory" and isinstance(value, str):
        try:
            return None if parse_size(value) > 0 else setting.refuse()
        except ValueError as error:
            return f"{setting.label}: {error}"
    return None


def _infinite(value: Any) -> bool:
    try:
        return not math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def _nest(settings: Mapping[Key, Setting]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, setting in settings.items():
        inner = document
        for part in key[:-1]:
            inner = inner.setdefault(part, {})
        inner[key[-1]] = setting.value
    return document


def _explain(settings: Mapping[Key, Setting], location: tuple[int | str, ...]) -> str:
    parts = tuple(str(part) for part in location)
    for key, setting in settings.items():
        if key[: len(parts)] == parts or parts[: len(key)] == key:
            return setting.refuse()
    return f"{'.'.join(parts)}: not allowed"


def _refusal(problems: list[str]) -> ConfigError:
    return ConfigError("CORE-C101", "; ".join(dict.fromkeys(problems)) + ".", hint="See `core config explain NAME`.")
