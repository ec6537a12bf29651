"""Configuration patches: what plugins may change, and what they may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from core.api.errors import ConfigError, PluginError
from core.plugins.hooks import Proposal

if TYPE_CHECKING:
    from core.config.resolved import Options

SETTLED = frozenset(
    {
        "model.model",
        "model.revision",
        "model.hf_overrides",
        "model.rope_scaling",
        "select.platform",
        "select.model_source",
        "select.load_format",
        "select.model_impl",
        "select.disable_plugin",
        "select.plugins",
        "select.plugin_file",
        "select.plugins_lock",
        "select.strict",
        "runtime.plugin_options",
    }
)
"""Decisions made before plugins are asked, because their answers depend on them."""


@dataclass(frozen=True, slots=True)
class AppliedPatch:
    """A change that took effect: dotted path, value before and after, why, and whose it is."""

    path: str
    before: Any
    after: Any
    reason: str
    owner: str

    def __str__(self) -> str:
        return f"{self.path} {self.before} -> {self.after} by {self.owner}: {self.reason}"


def apply_patches(
    options: Options, current: Mapping[str, Mapping[str, Any]], proposals: Sequence[Proposal]
) -> tuple[Options, list[AppliedPatch], list[str]]:
    """Return the patched options, what changed, and notes on advice that was not followed.

    Args:
        current: The values in force before, nested, `auto` already resolved.

    Raises:
        ConfigError: CORE-P210, a plugin insists on a value that the user set differently; CORE-P211, two plugins
            want different values; CORE-P212, the path is unknown or settled, or the value is not allowed.
    """
    applied: list[AppliedPatch] = []
    notes: list[str] = []
    wanted: dict[str, Proposal] = {}
    for proposal in proposals:
        patch, owner = proposal.patch, proposal.entry.owner
        before = _value(options, current, proposal)
        if before == patch.value:
            continue
        if user_set(options, patch.path):
            if patch.strength == "required":
                raise _against_user(proposal, before)
            notes.append(
                f"{patch.path} stays {before} as set by the user; {owner} advises {patch.value}: {patch.reason}"
            )
            continue
        first = wanted.setdefault(patch.path, proposal)
        if first.patch.value != patch.value:
            raise _clash(first, proposal)
        if first is proposal:
            applied.append(AppliedPatch(patch.path, before, patch.value, patch.reason, owner))
    for proposal in wanted.values():
        options = _set(options, proposal)
    return options, applied, notes


def user_set(options: Options, path: str) -> bool:
    """Say whether the user gave `path` a value; `auto` and nothing leave the choice to core."""
    section, _, name = path.partition(".")
    values = getattr(options, section)
    return name in values.model_fields_set and getattr(values, name) not in (None, "auto")


def _value(options: Options, current: Mapping[str, Mapping[str, Any]], proposal: Proposal) -> Any:
    path = proposal.patch.path
    section, _, name = path.partition(".")
    if name not in options.names_of(section):
        raise _unusable(proposal, "there is no such option")
    if path in SETTLED:
        raise _unusable(proposal, "it is decided before plugins are asked")
    return current[section][name]


def _set(options: Options, proposal: Proposal) -> Options:
    section, _, name = proposal.patch.path.partition(".")
    old = getattr(options, section)
    values = {**{key: getattr(old, key) for key in old.model_fields_set}, name: proposal.patch.value}
    try:
        return options.with_values(section, values)
    except ValidationError as error:
        raise _unusable(proposal, "; ".join(detail["msg"] for detail in error.errors())) from error


def _against_user(proposal: Proposal, value: Any) -> ConfigError:
    patch, entry = proposal.patch, proposal.entry
    return ConfigError(
        "CORE-P210",
        f"{patch.path} is set to {value}, but '{entry.name}' ({entry.owner}) needs {patch.value}: {patch.reason}.",
        hint=f"Leave {patch.path} out, or disable the plugin: --disable-plugin {entry.dist}.",
    )


def _clash(first: Proposal, second: Proposal) -> ConfigError:
    wishes = " and ".join(f"'{one.entry.name}' ({one.entry.owner}) to {one.patch.value}" for one in (first, second))
    return ConfigError(
        "CORE-P211",
        f"two plugins set {first.patch.path}: {wishes}.",
        hint=f"Set {first.patch.path} yourself, or disable one: --disable-plugin {second.entry.dist}.",
    )


def _unusable(proposal: Proposal, why: str) -> PluginError:
    patch, entry = proposal.patch, proposal.entry
    return PluginError(
        "CORE-P212", f"plugin '{entry.name}' ({entry.owner}) sets {patch.path} to {patch.value!r}: {why}."
    )
