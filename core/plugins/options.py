"""Options of plugins: validated against the model that the plugin's descriptor names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from core.api.errors import ConfigError
from core.plugins.catalog import Catalogue
from core.plugins.drivers import Candidate, guarded, load_impl
from core.plugins.entry import Entry, answers
from core.plugins.known import Table, advice, normalise
from core.suggest import nearest


def checked_options(candidate: Candidate, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plugin's options, complete with defaults when its descriptor names an options model.

    Raises:
        ConfigError: CORE-C111 naming the plugin and every option that is wrong.
        PluginError: Its options model cannot be imported, or raises something else.
    """
    return settled_options(candidate.entry, candidate.descriptor.options, given)


def settled_options(entry: Entry, path: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plugin's options, given the dotted path of its options model, if it names one. Raises as above."""
    if path is None:
        return dict(given)
    found = guarded(entry, path, _validated, load_impl(path, entry), given)
    if isinstance(found, ValidationError):
        faults = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'options'}: {one['msg']}" for one in found.errors())
        raise ConfigError("CORE-C111", f"options of plugin '{entry.name}' ({entry.owner}): {faults}.") from found
    values: dict[str, Any] = found
    return values


def _validated(model: type[BaseModel], given: Mapping[str, Any]) -> dict[str, Any] | ValidationError:
    try:
        return model.model_validate(dict(given)).model_dump(mode="json")
    except ValidationError as error:
        return error


def option_rows(candidate: Candidate) -> list[tuple[str, str, str]]:
    """Return `(name, default, description)` of every option that the plugin declares.

    Raises:
        PluginError: CORE-P103, its options model cannot be imported; CORE-P108, it is none, or a default raises.
    """
    path, entry = candidate.descriptor.options, candidate.entry
    rows: list[tuple[str, str, str]] = guarded(entry, path, _rows, load_impl(path, entry)) if path else []
    return rows


def _rows(model: type[BaseModel]) -> list[tuple[str, str, str]]:
    return [
        (
            name,
            "required" if field.is_required() else repr(field.get_default(call_default_factory=True)),
            str(field.description or ""),
        )
        for name, field in model.model_fields.items()
    ]


def given_options(entry: Entry, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is given for a plugin: under its name, and, outranking that, under `name@distribution`."""
    mine = [key for key in given if answers(key, entry)]
    return {name: value for key in sorted(mine, key=lambda key: "@" in key) for name, value in given[key].items()}


def shown(options: Mapping[str, Any]) -> str:
    """Return `key=value, ...` for people. Not for options of kinds that may be given secrets."""
    return ", ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()
    )


def unused_options(given: Mapping[str, object], active: Iterable[Entry], catalogue: Catalogue) -> list[str]:
    """Return a warning for every plugin that has options but takes no part.

    Raises:
        ConfigError: CORE-C112, options for what is not installed; CORE-C114, options for a bare name that plugins of
            several distributions have, all of which take part.
    """
    used = list(active)
    installed = catalogue.usable()
    warnings = []
    for key in given:
        owners = sorted({entry.dist for entry in used if answers(key, entry)})
        if len(owners) > 1:
            raise _unclear(key, owners)
        if owners:
            continue
        if not any(answers(key, entry) for entry in installed):
            raise _unknown(key, installed)
        warnings.append(f"options are given for plugin '{key}', which takes no part here")
    return warnings


def _unclear(name: str, owners: Sequence[str]) -> ConfigError:
    keys = " or ".join(f"{name}@{dist}" for dist in owners)
    text = f"options are given for '{name}', the name of plugins of {' and '.join(owners)}, which all take part."
    return ConfigError("CORE-C114", text, hint=f"Write {keys} instead of {name}.")


def _unknown(key: str, installed: Sequence[Entry]) -> ConfigError:
    name, at, _ = key.partition("@")
    owners = sorted({f"{name}@{entry.dist}" for entry in installed if entry.name == name})
    hint = nearest(key, owners) or f"There is {', '.join(owners)}." if at and owners else ""
    known = "" if owners else advice(Table.read().anywhere(name), name, {normalise(entry.dist) for entry in installed})
    return ConfigError(
        "CORE-C112",
        f"options are given for plugin '{key}', which is not installed.",
        hint=hint or known or nearest(name, sorted({entry.name for entry in installed})),
    )
