"""The parent's hold on a worker process: its socket, its life and its end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import zmq

from core.api import EngineError, PrivateFolder, clear_left
from core_plugin_executors.signs import SignsOfLife

_POLL_MS = 200
"""How late, at most, the death of a silent child is noticed while somebody waits for it."""


class Host:
    """A child process and the PAIR socket to it, in a folder that only this user can enter.

    Args:
        opener: Of the worker, in one line.
        close_timeout: Seconds that the child gets to end by itself.
    """

    def __init__(self, opener: str, close_timeout: float) -> None:
        self._close_timeout = close_timeout
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.linger = 0
        self._socket.sndhwm = 0
        self._folder = PrivateFolder()
        self._signs = SignsOfLife()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._spawn(f"ipc://{self._folder.path / 'socket'}", opener)
        except BaseException:
            self.close()
            raise
        clear_left()  # while the child does its imports

    @property
    def pid(self) -> int | None:
        """Process id of the child."""
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        """Whether the child runs."""
        return self._process is not None and self._process.poll() is None

    def moves(self) -> bool:
        """Whether the child runs and gave a sign of life lately; safe from any thread."""
        return self.alive() and self._signs.recent()

    def send(self, data: bytes) -> None:
        """Queue a message to the child; one that is gone never blocks the sender, `receive` finds it out."""
        with contextlib.suppress(zmq.Again):
            self._socket.send(data, zmq.DONTWAIT)

    def receive(self, deadline: float | None = None) -> bytes | None:
        """Wait for a message.

        Args:
            deadline: `time.monotonic()` after which the wait is given up; None waits as long as the child lives.

        Returns:
            The message; None when the child is dead and has left none.

        Raises:
            TimeoutError: The deadline passed.
        """
        while not self._socket.poll(_POLL_MS):
            if not self.alive():
                # What it said last may have come between the two looks.
                return self._socket.recv() if self._socket.poll(0) else None
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError
        return self._socket.recv()

    def obituary(self) -> EngineError:
        """Say how the child ended."""
        status = self._process.poll() if self._process else None
        hint = "Its last lines on standard error say more."
        if status is None:
            how = "does not answer"
        elif status < 0:
            how = f"was ended by signal {_signal_name(-status)}"
            if -status == signal.SIGKILL:
                hint = "Often the system was out of memory: lower --kv-memory, or take a smaller model."
        else:
            how = f"ended with exit status {status}"
        return EngineError("CORE-E130", f"The worker process {self.pid} {how}.", hint=hint)

    def close(self) -> None:
        """Wait for the child to end, kill it if it does not, and remove the socket's folder."""
        if self._process is not None:
            _end(self._process, self._close_timeout)
        self._context.destroy(linger=0)
        self._signs.close()
        self._folder.remove()

    def _spawn(self, address: str, opener: str) -> None:
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            reason = f"The worker's socket cannot be made at {address}: {error}."
            raise EngineError("CORE-E134", reason, hint="Set TMPDIR to a short, writable path.") from error
        # -P: a folder named `core` in the working directory must not take the place of the installed package.
        command = [sys.executable, "-P", "-m", "core_plugin_executors.child"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[self._signs.writing])
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # A child that is dead already is found by `receive`.
                stdin.write(f"{address}\n{self._signs.writing}\n{opener}\n".encode())
                stdin.flush()


def _end(process: subprocess.Popen[bytes], timeout: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
    if process.poll() is None:
        process.kill()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    process.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
