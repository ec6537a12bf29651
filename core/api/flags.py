"""Flags of other servers: what a command line or a file that was written for one means here. Provisional."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol


class FlagDialect(Protocol):
    """Runtime of a `FlagDialectSpec`: the flags of one other server. Torch-free, made without arguments.

    It is imported when a word is met that core does not know, and never before; it is then asked in the process that
    reads the options. Whatever it takes must have an effect, or ask for what is so anyway: it refuses the rest with a
    `ConfigError` of CORE-C105 whose hint says why, or what to write instead. What it does not know it leaves alone, so
    that the next dialect is asked, and what nobody knows is refused as any unknown flag.
    """

    def option(self, name: str) -> str | None:
        """Return the option of core's that a name means, whatever its value; None for a name that is no such one.

        The name is then one of the option's everywhere: as a flag, a `CORE_*` variable, a key and an argument of `LLM`.
        Nothing else is asked of it.

        Args:
            name: With dashes between its words, and none in front.
        """
        ...

    def translate(self, words: Sequence[str], known: Collection[str]) -> Sequence[str]:
        """Return a command line with the dialect's flags left out, or replaced by core's.

        Args:
            words: What was typed, values among them; an underscore of a flag that core knows is a dash already.
            known: Core's flags, with dashes. They and their values pass as they are.

        Raises:
            ConfigError: CORE-C105, a flag cannot be honoured; CORE-C104, it lacks its value.
        """
        ...

    def setting(self, key: str, value: Any) -> Iterable[tuple[str, Any]] | None:
        """Return what a key of a configuration file sets: names of core's options, each with its value.

        Args:
            key: As it is written, dotted or not. It is no option of core's.

        Returns:
            Nothing where the key asks for what is so anyway; None for a key that the dialect does not know.

        Raises:
            ConfigError: CORE-C105, it cannot be honoured.
        """
        ...

    def spelled(self, path: str, value: str) -> str | None:
        """Return core's name of a value that an option does not take as it is; None for one that it does not know.

        Args:
            path: The option as `section.name`: `model.dtype`.
        """
        ...

    def describe(self, name: str) -> Sequence[str] | None:
        """Return lines that say what a flag means here, for `core config explain`; None for one it does not know.

        Args:
            name: The flag, with its dashes or without those in front.
        """
        ...
