"""Configuration patches and problems: how plugins speak about configuration without mutating it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class ConfigPatch(BaseModel):
    """Set an option.

    A value the user set is immutable: patching it is an error, unless `strength` is `advice`, when it is skipped.

    Attributes:
        path: Dotted path of the option, `kv.block_size`.
        value: Its new value.
        reason: Why, for the user.
        strength: `required`, or `advice`.
    """

    model_config = ConfigDict(frozen=True)

    path: str
    value: Any
    reason: str
    strength: Literal["required", "advice"] = "required"


class Problem(BaseModel):
    """Something wrong with a configuration.

    Attributes:
        level: `error` stops the start, `warning` is printed.
        code: Stable code, with a prefix of the plugin's own.
        message: What is wrong, with which value.
        hint: What to do about it.
    """

    model_config = ConfigDict(frozen=True)

    level: Literal["error", "warning"]
    code: str
    message: str
    hint: str = ""


class Waiver(BaseModel):
    """A plugin takes responsibility for a problem: an error becomes a warning.

    Attributes:
        reason: Why it is none with this plugin; the warning carries it.
    """

    model_config = ConfigDict(frozen=True)

    reason: str


class Finding(BaseModel):
    """Finding of a plugin about this machine, for `core plugins doctor`.

    Attributes:
        level: `error` makes the check fail.
        message: What was found.
        hint: What to do about it.
    """

    model_config = ConfigDict(frozen=True)

    level: Literal["ok", "warning", "error"]
    message: str
    hint: str = ""
