"""What core lends to commands: option flags, the terminal, servers, an engine, signals and files. Provisional.

A command that needs any of it has a method `bind` (`UsesHost`), which is given a `CommandHost` before the command's
arguments are registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import argparse
    import asyncio
    import signal
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import IO

    from core.api.given_options import GivenOptions
    from core.api.kept import LocalModels
    from core.api.offline import OfflineEngine, StepPhase
    from core.api.sampling import SamplingField
    from core.api.servers import Servers

T = TypeVar("T")


class OptionFlags(Protocol):
    """The options of the engine and the server on a command line: `add` and `load`, or `add_alone` and `load_alone`."""

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Add the flag of every option, `--config` and `--opt`."""
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


class RequestProgress(Protocol):
    """Progress of many requests. Entered before the first; leaving takes its bar away."""

    def __enter__(self) -> RequestProgress: ...

    def __exit__(self, *raised: Any) -> None: ...

    def step(self, *, failed: bool, tokens: int) -> None:
        """Say that one request is done, and how many tokens it generated."""
        ...


class Terminal(Protocol):
    """What commands print: the same on every terminal, in a pipe and in a log."""

    def table(
        self,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        right: Sequence[int] = (),
        optional: Sequence[int] = (),
    ) -> str:
        """Return rows as aligned text, no wider than the terminal.

        Args:
            header: Column titles; empty for none.
            right: Indices of columns that are aligned to the right.
            optional: Indices of columns that may be left out, the first one first.
        """
        ...

    def size(self, num_bytes: float) -> str:
        """Return a size with about three digits and a binary unit."""
        ...

    def duration(self, seconds: float) -> str:
        """Return a length of time in its two largest units: `3 d 4 h`, `12 s`."""
        ...

    def meant(self, word: str, known: Iterable[str]) -> str:
        """Return "Did you mean '...'?" for the one of `known` that is closest to a word, or an empty text."""
        ...

    def counted(self, what: str, times: int) -> AbstractContextManager[Iterator[int]]:
        """Give 0, 1, ... and show progress on standard error after each; nothing is drawn in between.

        Args:
            what: What is counted, in the plural.
        """
        ...

    def requests(self, total: int, *, steady: bool = True) -> RequestProgress:
        """Return the progress of requests, on standard error.

        Args:
            steady: Whether the bar moves between two of them; without, it takes no time from what is being measured.
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
    """What core lends to a command.

    Attributes:
        options: Flags and values of the engine's and the server's options.
        terminal: What is printed.
        servers: Those that run, and ones of the command's own.
        signals: How a command is ended from outside.
        files: Files that are written in one piece.
        models: Models on this machine.
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
    def step_phases(self) -> Sequence[StepPhase]: ...

    def engine(self, options: GivenOptions) -> AbstractContextManager[OfflineEngine]:
        """Start an engine in this process and end it after the block. Raises `CoreError`."""
        ...


@runtime_checkable
class UsesHost(Protocol):
    """Optional part of a command: it uses what core lends."""

    def bind(self, host: CommandHost) -> None:
        """Take it. Called once, before `register`."""
        ...
