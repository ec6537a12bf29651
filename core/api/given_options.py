"""The options of the engine and the server, as a command is given them. Provisional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class GivenOptions(Protocol):
    """Options as the flags, the environment, the file and the defaults give them together."""

    def value(self, path: str) -> Any:
        """Return an option by its path, such as `model.seed`. Raises `KeyError`, there is no such option."""
        ...

    def source(self, path: str) -> str:
        """Return where an option's value is from: `flag`, `env CORE_X`, `file PATH`, or `default`."""
        ...

    def flags(self, *, secrets: bool = True) -> list[str]:
        """Return flags that rebuild what differs from the defaults.

        Args:
            secrets: Whether keys and tokens are among them, which a list of processes would show.
        """
        ...

    def changed(self, values: Mapping[str, Any]) -> GivenOptions:
        """Return these options with other values, by path."""
        ...
