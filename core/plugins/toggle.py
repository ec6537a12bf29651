"""Disabling plugins in a configuration file; comments and layout of the file stay as they are."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.api.errors import ConfigError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_SECTION = "select"
_SPELLINGS = ("disable_plugin", "disable-plugin")


class DisabledList:
    """The list `select.disable_plugin` of a TOML file, wherever and however the file spells it.

    Raises:
        ConfigError: CORE-C141, the file is not TOML, or cannot be read.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        if self._path.suffix.lower() != ".toml":
            raise self._unusable("only TOML files are edited", "Change select.disable_plugin in it by hand.")
        self._document = self._read()
        self._holder, self._key = self._place()
        value = self._holder.get(self._key, [])
        self.names: list[str] = [str(value)] if isinstance(value, str) else [str(name) for name in value]

    def write(self, names: list[str]) -> None:
        """Replace the list and write the file. Raises `ConfigError` CORE-C141 when it cannot be written."""
        import tomlkit

        current = self._holder.get(self._key)
        if isinstance(current, list):
            # Item by item: replacing the array would lose comments between its items.
            for name in self.names:
                if name not in names:
                    current.remove(name)
            current.extend(name for name in names if name not in self.names)
        else:
            self._holder[self._key] = names
        self.names = names
        try:
            self._path.write_text(tomlkit.dumps(self._document), encoding="utf-8")
        except OSError as error:
            raise self._unusable(f"it cannot be written: {error.strerror or error}") from error

    def _read(self) -> TOMLDocument:
        import tomlkit
        from tomlkit.exceptions import ParseError

        try:
            return tomlkit.parse(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return tomlkit.document()
        except (OSError, ValueError, ParseError) as error:
            raise self._unusable(f"it cannot be read: {error}") from error

    def _place(self) -> tuple[MutableMapping[str, Any], str]:
        """Return the table and key that hold the list; a new one goes into the section `select`."""
        import tomlkit

        section = self._document.get(_SECTION)
        for spelling in _SPELLINGS:
            if isinstance(section, MutableMapping) and spelling in section:
                return section, spelling
            for key in (spelling, f"{_SECTION}.{spelling}"):
                if key in self._document:
                    return self._document, key
        if not isinstance(section, MutableMapping):
            self._document[_SECTION] = tomlkit.table()
            section = self._document[_SECTION]
        return section, _SPELLINGS[0]

    def _unusable(self, why: str, hint: str = "") -> ConfigError:
        return ConfigError("CORE-C141", f"configuration file {self._path} cannot be edited: {why}.", hint=hint)
