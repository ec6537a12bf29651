"""Values of sections that plugins declare: checked by their models, then plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from core.config.section import Section
from core.config.sections import plugin_sections

RECEIVED = "received"
"""Said of a configuration that another process has checked: its plugins' options are plain data, as they are."""


class SectionValues(BaseModel):
    """The values of a section that a plugin declares, as plain data. Its model has checked them."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @classmethod
    def of(cls, section: Section, given: Mapping[str, Any]) -> SectionValues:
        """Return what a section's model makes of values. Raises `ValidationError`."""
        return cls.model_construct(_fields_set=set(given), **section.checked(given))

    @property
    def values(self) -> Mapping[str, Any]:
        """Every value by its name."""
        return self.model_extra or {}


def values_of(section: Section, given: Mapping[str, Any]) -> SectionValues | ValidationError:
    """Return what a section's model makes of values, or what it says against them. Raises `PluginError` CORE-P108."""
    from core.plugins.drivers import guarded

    def checked() -> SectionValues | ValidationError:
        try:
            return SectionValues.of(section, given)
        except ValidationError as error:
            return error

    found: SectionValues | ValidationError = guarded(section.entry, section.descriptor.impl, checked)
    return found


def given_sections(document: Mapping[str, Any]) -> Iterator[tuple[str, SectionValues | ValidationError]]:
    """Yield every section of plugins that a document of options has, with its values. Raises as `values_of`."""
    for name, section in plugin_sections().items():
        if name in document:
            yield name, values_of(section, document[name])
