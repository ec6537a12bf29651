"""A section of options that a plugin declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from core.api.descriptors import OptionSection
from core.config.option_field import OptionField
from core.plugins.entry import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A section that can be used.

    Attributes:
        model: What its values are held against.
        fields: Its options, in the order of the model.
    """

    entry: Entry
    descriptor: OptionSection
    model: type[BaseModel]
    fields: tuple[OptionField, ...]

    @property
    def help(self) -> str:
        """One line on it: what its model says, else its summary."""
        return (vars(self.model).get("__doc__") or "").strip().partition("\n")[0] or self.descriptor.summary

    def checked(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return all its values as plain data. Raises `pydantic.ValidationError`, or what the plugin's model raises."""
        found: dict[str, Any] = self.model.model_validate(dict(values)).model_dump(mode="json")
        return found
