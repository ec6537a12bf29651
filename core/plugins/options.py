"""Options of plugins: validated against the model that the plugin's descriptor names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from core.api.errors import ConfigError
from core.plugins.catalog import Catalogue, Entry, answers, similar
from core.plugins.drivers import Candidate, load_impl


def checked_options(candidate: Candidate, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plugin's options, complete with defaults when its descriptor names an options model.

    Raises:
        ConfigError: CORE-C111 naming the plugin and every option that is wrong.
    """
    path, entry = candidate.descriptor.options, candidate.entry
    if path is None:
        return dict(given)
    try:
        values: dict[str, Any] = load_impl(path, entry).model_validate(dict(given)).model_dump(mode="json")
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'options'}: {one['msg']}" for one in error.errors())
        raise ConfigError("CORE-C111", f"options of plugin '{entry.name}' ({entry.owner}): {faults}.") from error
    return values


def option_rows(candidate: Candidate) -> list[tuple[str, str, str]]:
    """Return `(name, default, description)` of every option that the plugin declares.

    Raises:
        PluginError: CORE-P103 when its options model cannot be imported.
    """
    path = candidate.descriptor.options
    fields = load_impl(path, candidate.entry).model_fields if path else {}
    return [
        (
            name,
            "required" if field.is_required() else repr(field.get_default(call_default_factory=True)),
            str(field.description or ""),
        )
        for name, field in fields.items()
    ]


def given_options(entry: Entry, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is given for a plugin: under its name, and, outranking that, under `name@distribution`."""
    mine = [key for key in given if answers(key, entry)]
    return {name: value for key in sorted(mine, key=lambda key: "@" in key) for name, value in given[key].items()}


def unused_options(given: Mapping[str, object], active: Iterable[Entry], catalogue: Catalogue) -> list[str]:
    """Return a warning for every plugin that has options but takes no part.

    Raises:
        ConfigError: CORE-C112, options for what is not installed; CORE-C114, options for a bare name that plugins of
            several distributions have, all of which take part.
    """
    used = list(active)
    installed = [entry for group in catalogue.groups() for entry in catalogue.entries(group)]
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
    hint = similar(key, owners) or f"There is {', '.join(owners)}." if at and owners else ""
    return ConfigError(
        "CORE-C112",
        f"options are given for plugin '{key}', which is not installed.",
        hint=hint or similar(name, sorted({entry.name for entry in installed})),
    )
