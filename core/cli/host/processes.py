"""Signals and files, as commands of plugins use them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, TypeVar

from core.cli.files import replaced, write_whole
from core.signals import closed_whole, ended_by, held_back, run_ended_by

T = TypeVar("T")


class AllSignals:
    """How a command is ended from outside; `Signals`."""

    def ended_by(self, *signals: signal.Signals) -> AbstractContextManager[None]:
        """Have these signals end the block like an error."""
        return ended_by(*signals)

    def held_back(self, *signals: signal.Signals) -> AbstractContextManager[None]:
        """Hold signals back in the block."""
        return held_back(*signals)

    def closed_whole(self, runner: asyncio.Runner) -> AbstractContextManager[asyncio.Runner]:
        """Close a runner after the block, with all its tasks."""
        return closed_whole(runner)

    def run(self, runner: asyncio.Runner, work: Coroutine[Any, Any, T], *signals: signal.Signals) -> T:
        """Run a coroutine that these signals cancel."""
        return run_ended_by(runner, work, *signals)


class Files:
    """Files that are there as a whole or not at all; `WholeFiles`."""

    def replaced(self, path: Path) -> AbstractContextManager[IO[bytes]]:
        """Give a new file that takes the place of `path` when the block ends well."""
        return replaced(path)

    def write(self, path: Path, data: bytes) -> None:
        """Write a file in one piece."""
        write_whole(path, data)
