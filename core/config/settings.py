"""One value with its origin, and the merge of several layers of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.config.option_field import OptionField

Key = tuple[str, ...]
"""`(section, name)`; options of plugins go on with the plugin's name and the key."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A value somebody set.

    Attributes:
        source: For reports: `flag`, `env CORE_X`, `file PATH`.
        label: For error messages: `flag --block-size`, `variable CORE_X`, `key kv.block_size of PATH`.
    """

    field: OptionField
    value: Any
    source: str
    label: str

    @property
    def key(self) -> Key:
        """Where the value belongs."""
        return (self.field.section, self.field.name)

    def spread(self) -> Iterator[tuple[Key, Setting]]:
        """Yield the setting by its key; a mapping of plugin options yields one setting per key."""
        if self.field.kind != "mapping" or not isinstance(self.value, Mapping):
            yield self.key, self
            return
        for name, options in self.value.items():
            if not isinstance(options, Mapping) or not options:
                yield (*self.key, str(name)), replace(self, value=options)
                continue
            for key, value in options.items():
                yield (*self.key, str(name), str(key)), replace(self, value=value)

    def refuse(self) -> str:
        """Return a sentence that refuses the value; a secret is not repeated."""
        shown = "the value" if self.field.secret else repr(self.value)
        return f"{self.label}: {shown} is not allowed; allowed: {self.field.allowed}"


def merge(layers: Sequence[Mapping[Key, Setting]]) -> dict[Key, Setting]:
    """Return the settings of all layers; later layers win, also over what lies above or below their key."""
    merged: dict[Key, Setting] = {}
    for key, setting in (item for layer in layers for item in layer.items()):
        for other in [one for one in merged if one[: len(key)] == key[: len(one)]]:
            del merged[other]
        merged[key] = setting
    return merged
