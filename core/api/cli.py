"""Host services for commands: option flags, the terminal, servers, plugins, an engine, signals, files. Provisional.

A command that needs any of it has a method `bind` (`UsesHost`), which is given a `CommandHost` before the command's
arguments are registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import argparse
    import asyncio
    import signal
    from collections.abc import Coroutine, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import IO

    from core.api.given_options import GivenOptions
    from core.api.kept import LocalModels
    from core.api.offline import OfflineEngine, StepPhase
    from core.api.plugins import InstalledPlugins
    from core.api.sampling import SamplingField
    from core.api.servers import Servers
    from core.api.terminal import Terminal

T = TypeVar("T")


class OptionFlags(Protocol):
    """The options of the engine and the server on a command line: `add` and `load`, or `add_alone` and `load_alone`."""

    def add(self, parser: argparse.ArgumentParser, *, positional_model: bool = False) -> None:
        """Add the flag of every option, `--config` and `--opt`.

        Args:
            positional_model: Whether the model is named without a flag.
        """
        ...

    def add_alone(self, parser: argparse.ArgumentParser, *, positional_model: bool = False) -> None:
        """Add the same for a command that runs a model for itself alone; `--help` comes in layers as with `core serve`.

        Args:
            positional_model: Whether the model is named without a flag.
        """
        ...

    def add_some(self, parser: argparse.ArgumentParser, paths: Sequence[str], *, of_plugins: bool = False) -> None:
        """Add the flags of some options, `--config`, and those that say which plugins there are. `load` goes with it.

        Args:
            paths: Those of the options.
            of_plugins: Whether `--opt` is added, too.
        """
        ...

    def add_rest(self, parser: argparse.ArgumentParser, dest: str) -> None:
        """Hand what follows a word `--` over as the list `dest`: it is meant for another program."""
        ...

    def given(self, args: argparse.Namespace) -> Mapping[str, str]:
        """Return the flag that brought each option which the command line sets, by the option's path."""
        ...

    def load(self, args: argparse.Namespace) -> GivenOptions:
        """Return the options. Raises `ConfigError` with every value that is not allowed."""
        ...

    def load_alone(self, args: argparse.Namespace) -> GivenOptions:
        """Return the options. Raises `ConfigError` as `load`, and where a flag sets an address (CORE-C182)."""
        ...

    def sampling_fields(self) -> Sequence[tuple[str, SamplingField]]:
        """Return the sampling parameters that installed logits processors declare, each with its processor's name."""
        ...

    def of_model(self, model: str, flag: str) -> GivenOptions:
        """Return the options for a model of which the command line says nothing else.

        Args:
            flag: What named it, for messages.
        """
        ...


class Signals(Protocol):
    """Ctrl-C and other signals by which somebody asks a command to end."""

    def ended_by(self, *signals: signal.Signals) -> AbstractContextManager[None]:
        """Have these signals end the block like an error, so that what it has opened is closed. For the main thread."""
        ...

    def held_back(self, *signals: signal.Signals) -> AbstractContextManager[None]:
        """Hold signals back: what is started meanwhile is born with them blocked."""
        ...

    def closed_whole(self, runner: asyncio.Runner) -> AbstractContextManager[asyncio.Runner]:
        """Close a runner after the block, with all its tasks, whatever signal comes meanwhile."""
        ...

    def run(self, runner: asyncio.Runner, work: Coroutine[Any, Any, T], *signals: signal.Signals) -> T:
        """Run a coroutine that these signals cancel, as Ctrl-C does; it may clean up before the command ends."""
        ...


class WholeFiles(Protocol):
    """Files that are there as a whole or not at all."""

    def replaced(self, path: Path) -> AbstractContextManager[IO[bytes]]:
        """Give a new file that takes the place of `path` when the block ends well. Raises `OSError`."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Write a file in one piece. Raises `OSError`."""
        ...


class CommandHost(Protocol):
    """Host services that core lends to a command.

    Attributes:
        options: Flags and values of the engine's and the server's options.
        terminal: What is printed.
        servers: Those that run, and ones of the command's own.
        signals: How a command is ended from outside.
        files: Files that are written in one piece.
        models: Models on this machine.
        plugins: What is installed, and what a start would make of it.
        step_phases: What an engine can time of its steps, in the order in which a step goes through them. Phases of
            the engine run beside those of the worker.
    """

    @property
    def options(self) -> OptionFlags: ...

    @property
    def terminal(self) -> Terminal: ...

    @property
    def servers(self) -> Servers: ...

    @property
    def signals(self) -> Signals: ...

    @property
    def files(self) -> WholeFiles: ...

    @property
    def models(self) -> LocalModels: ...

    @property
    def plugins(self) -> InstalledPlugins: ...

    @property
    def step_phases(self) -> Sequence[StepPhase]: ...

    def engine(self, options: GivenOptions) -> AbstractContextManager[OfflineEngine]:
        """Start an engine in this process and end it after the block. Raises `CoreError`."""
        ...

    def in_process(self, function: str) -> Sequence[str]:
        """Return the words that start a Python process which calls a function with a host of its own.

        The process has this one's environment, the working directory is not on its import path, and its exit status is
        what the function returns.

        Args:
            function: It, as `package.module:name`, of one argument.
        """
        ...


@runtime_checkable
class UsesHost(Protocol):
    """Optional part of a command: it uses what core lends."""

    def bind(self, host: CommandHost) -> None:
        """Take it. Called once, before `register`."""
        ...
