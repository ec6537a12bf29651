"""Commands: further sub-commands of `core`. Provisional."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse


class Command(Protocol):
    """Runtime of a `CommandSpec`: `core NAME ...`. Made when its name is typed."""

    def register(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's own arguments to its parser."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Carry out the command and return the exit status. A `CoreError` is printed as one line."""
        ...
