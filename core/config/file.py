"""Configuration files: TOML or YAML, nested by section, dotted, or flat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from core.api.errors import ConfigError
from core.config.dialects import lead, settings_of
from core.config.fields import fields_by_path, find_field, option_fields, section_help
from core.config.option_field import OptionField
from core.config.settings import Key, Setting
from core.suggest import nearest

_SUFFIXES = (".toml", ".yaml", ".yml")


def read_file(path: str) -> dict[Key, Setting]:
    """Return the settings of a file.

    `kv: {block_size: 16}`, `kv.block_size: 16` and `block-size: 16` mean the same; a flag's other names work too.

    Raises:
        ConfigError: The file cannot be read (CORE-C103), or has keys that are no options or say one twice (C102).
    """
    document = _parse(Path(path))
    settings: dict[Key, Setting] = {}
    for written, value in _entries(document):
        label = f"key {written} of {path}"
        for field, meant in _meant(path, written, value):
            for key, setting in Setting(field, _plain(field, meant), f"file {path}", label).spread():
                if key in settings:
                    raise ConfigError(
                        "CORE-C102", f"{path}: {label} repeats {settings[key].label}.", hint="Keep one of them."
                    )
                settings[key] = setting
    return settings


def _meant(path: str, written: str, value: Any) -> Iterator[tuple[OptionField, Any]]:
    """Yield what a key sets: one option, or what a key of another server's stands for. Raises `ConfigError`."""
    field = find_field(written)
    if field is not None:
        yield field, value
        return
    pairs = settings_of(written, value)
    if pairs is None:
        raise ConfigError("CORE-C102", f"{path}: unknown key {written!r}.", hint=_suggest(written))
    for name, meant in pairs:
        known = find_field(name)
        if known is not None:
            yield known, meant


def _parse(path: Path) -> Mapping[Any, Any]:
    if path.suffix.lower() not in _SUFFIXES:
        raise _unreadable(path, f"its name must end in {', '.join(_SUFFIXES)}")
    try:
        text = path.read_text(encoding="utf-8")
        document = _toml(text) if path.suffix.lower() == ".toml" else _yaml(text)
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from None
    if not isinstance(document, Mapping):
        raise _unreadable(path, f"its top level is a {type(document).__name__}, not a mapping")
    return document


def _toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _yaml(text: str) -> Any:
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    return {} if document is None else document


def _unreadable(path: Path, why: str) -> ConfigError:
    reason = " ".join(why.split())
    return ConfigError(
        "CORE-C103", f"configuration file {path} cannot be read: {reason}.", hint="Check --config or CORE_CONFIG."
    )


def _entries(document: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    titles = {name.replace("_", "-") for name in section_help()}
    for key, value in document.items():
        name = str(key)
        if name.replace("_", "-") in titles and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", setting) for inner, setting in value.items())
        else:
            yield name, value


def _suggest(written: str) -> str:
    known = [name.replace("-", "_") for field in option_fields() for name in field.names] + list(fields_by_path())
    hint = nearest(written.replace("-", "_"), known) or "`core config show` lists every option."
    return f"{hint} {lead()}".rstrip()


def _plain(field: OptionField, value: Any) -> Any:
    # A size in bytes is a number to a person who writes a file; one name is a list of one, and names in order of
    # preference are a list.
    if field.path == "kv.kv_memory" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if field.kind == "list" and isinstance(value, str):
        return [value]
    return value
