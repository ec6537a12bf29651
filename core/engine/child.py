"""The child process that an engine runs in: started before anything is decided, told what to run afterwards.

A server's start is a chain of imports. The engine's own, which are the longer ones, begin with the process; what the
process serves is known only when the parent has chosen the plugins. So it is started first and configured later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Self

import msgspec

from core import logs
from core.api.folders import PrivateFolder, clear_left
from core.signals import held_back

if TYPE_CHECKING:
    from types import TracebackType

    from core.config.resolved import EngineConfig

LOOP_STACK = signal.SIGUSR1
"""An engine process that gets this writes one stack to standard error, its main thread's as a rule, even if stuck."""
STACKS = signal.SIGUSR2
"""An engine process that gets this writes the stacks of all its threads, unless one keeps the interpreter's lock."""

RELAY_SECONDS = 2.0
"""How long the end of the process waits for its last words to be passed on."""

_DEFERRED = (signal.SIGINT, signal.SIGTERM)
"""They reach the whole process group; in the middle of its first imports the child would answer with a traceback."""


class Bootstrap(msgspec.Struct):
    """The line on the child's standard input.

    Attributes:
        inbox: Address the engine pulls messages from.
        outbox: Address it pushes messages to.
        config: `EngineConfig` as JSON.
        log_level, log_format: As in the parent.
    """

    inbox: str
    outbox: str
    config: str
    log_level: str
    log_format: str


class EngineChild:
    """An engine process without a configuration, which waits for one.

    Attributes:
        process: The process. It ends when its standard input does, so it never outlives this one.
        folder: Where the sockets to it are; only this user can enter.
    """

    def __init__(self) -> None:
        self._private = PrivateFolder()
        self.folder = self._private.path
        self.configured = self._ended = False
        command = [sys.executable, "-P", "-m", "core.engine.process"]
        output = subprocess.PIPE if logs.is_json() else None  # libraries write no records
        try:
            with held_back(*_DEFERRED):  # until the child can say what they mean to it
                # A group of its own: with it end the processes that it started, however it ended.
                self.process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=output, stderr=output and subprocess.STDOUT, process_group=0
                )
        except BaseException:
            self._remove()
            raise
        said = self.process.stdout
        self._relay = None if said is None else logs.relay(said, "engine", self.process.pid)
        clear_left()  # while the child does its imports

    @property
    def inbox(self) -> str:
        """Address on which the engine is sent messages."""
        return f"ipc://{self.folder}/in"

    @property
    def outbox(self) -> str:
        """Address on which it sends its own."""
        return f"ipc://{self.folder}/out"

    def configure(self, config: EngineConfig) -> None:
        """Say what to run; the engine begins at once. Only the first call counts."""
        if self.configured:
            return
        self.configured = True
        log_level, log_format = logs.in_force()
        bootstrap = Bootstrap(
            inbox=self.inbox,
            outbox=self.outbox,
            config=config.model_dump_json(),
            log_level=log_level,
            log_format=log_format,
        )
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # whoever waits for the engine finds out how it ended
                self.process.stdin.write(msgspec.json.encode(bootstrap) + b"\n")
                self.process.stdin.flush()

    def close_input(self) -> None:
        """Close the pipe, which ends the process unless it is busy with its own end."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def poll(self) -> int | None:
        """Return the exit status, None while the process runs. What it started and left behind ends with it."""
        status = self.process.poll()
        if status is not None and not self._ended:
            self._ended = True
            # A worker that is stopped would never see that its engine is gone.
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return status

    def end(self) -> None:
        """Kill the process if it still runs, and remove the sockets' folder. Harmless when called again."""
        if self.poll() is None:
            self.process.kill()
        self.close_input()
        self.process.wait()
        self.poll()
        if self._relay is not None:
            self._relay.join(RELAY_SECONDS)
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _remove(self) -> None:
        self._private.remove()
