"""What core lends to commands (`core.api.cli`). What a part needs is imported when a command uses it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.api.given_options import GivenOptions
    from core.api.offline import OfflineEngine, StepPhase
    from core.cli.host.models import AllModels
    from core.cli.host.options import Flags
    from core.cli.host.plugins import AllPlugins
    from core.cli.host.processes import AllSignals, Files
    from core.cli.host.servers import AllServers
    from core.cli.host.terminal import Screen


class Host:
    """What a command is lent; a `CommandHost`."""

    @cached_property
    def options(self) -> Flags:
        """The options on a command line."""
        from core.cli.host.options import Flags

        return Flags()

    @cached_property
    def terminal(self) -> Screen:
        """What commands print."""
        from core.cli.host.terminal import Screen

        return Screen()

    @cached_property
    def servers(self) -> AllServers:
        """How to find, ask and start servers."""
        from core.cli.host.servers import AllServers

        return AllServers()

    @cached_property
    def signals(self) -> AllSignals:
        """How a command is ended from outside."""
        from core.cli.host.processes import AllSignals

        return AllSignals()

    @cached_property
    def files(self) -> Files:
        """Files that are written in one piece."""
        from core.cli.host.processes import Files

        return Files()

    @cached_property
    def models(self) -> AllModels:
        """Models on this machine."""
        from core.cli.host.models import AllModels

        return AllModels()

    @cached_property
    def plugins(self) -> AllPlugins:
        """What is installed, and what a start would make of it."""
        from core.cli.host.plugins import AllPlugins

        return AllPlugins()

    @property
    def step_phases(self) -> list[StepPhase]:
        """What an engine can time of its steps."""
        from core.cli.host.engine import step_phases

        return step_phases()

    def engine(self, options: GivenOptions) -> AbstractContextManager[OfflineEngine]:
        """Start an engine in this process and end it after the block."""
        from core.cli.host.engine import opened

        return opened(options)

    def in_process(self, function: str) -> list[str]:
        """Return the words that start a Python process which calls a function with a host of its own."""
        return [sys.executable, "-P", "-m", "core.cli.host", function]
