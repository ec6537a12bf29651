"""Options of plugins: validated against the model that the plugin's descriptor names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from core.api.errors import ConfigError
from core.plugins.catalog import Catalogue, similar
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


def unused_options(given: Mapping[str, object], active: Iterable[str], catalogue: Catalogue) -> list[str]:
    """Return a warning for every plugin that has options but takes no part.

    Raises:
        ConfigError: CORE-C112, options for a name that is not installed.
    """
    used = set(active)
    installed = sorted({entry.name for group in catalogue.groups() for entry in catalogue.entries(group)})
    warnings = []
    for name in given:
        if name in used:
            continue
        if name not in installed:
            raise ConfigError(
                "CORE-C112",
                f"options are given for plugin '{name}', which is not installed.",
                hint=similar(name, installed),
            )
        warnings.append(f"options are given for plugin '{name}', which takes no part here")
    return warnings
