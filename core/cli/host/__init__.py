"""Host services of commands (`core.api.cli`). Imports are made when a command uses a part."""

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
    """Host services of a command; a `CommandHost`."""

    @cached_property
    def options(self) -> Flags:
        """The options on a command line."""
        from core.cli.host.options import Flags

        return Flags()

    @cached_property
    def terminal(self) -> Screen:
        """Output of commands."""
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
        """The installed plugins, and the choices of a start."""
        from core.cli.host.plugins import AllPlugins

        return AllPlugins()

    @property
    def step_phases(self) -> list[StepPhase]:
        """Phases of a step that an engine can time."""
        from core.cli.host.engine import step_phases

        return step_phases()

    def engine(self, options: GivenOptions) -> AbstractContextManager[OfflineEngine]:
        """Start an engine in this process and end it after the block."""
        from core.cli.host.engine import opened

        return opened(options)

    def in_process(self, function: str) -> list[str]:
        """Return the words that start a Python process which calls a function with a host of its own."""
        return [sys.executable, "-P", "-m", "core.cli.host", function]
