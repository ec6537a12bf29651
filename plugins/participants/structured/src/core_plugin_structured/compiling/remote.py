"""This side of compilers in processes of their own."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import msgspec

from core.api.structured import CompiledGrammar
from core_plugin_structured.compiling.child import HEAD, Answer, Order, Task
from core_plugin_structured.compiling.turn import AbandonedError, BrokenCompilerError, OutOfTimeError, Turn

logger = logging.getLogger(__name__)

START_SECONDS = 60.0
"""Time that a process may take until it is ready to compile."""

_LOOK_SECONDS = 0.1
"""How often is looked whether anybody still waits."""
_LARGE = 32 * 2**20
"""Bytes of a compiled grammar after which a process is replaced: what it freed may be in pieces."""
_LAST_WORDS = 4096
NO_MEMORY = re.compile("memory allocation of|allocate memory|bad_alloc|out of memory|MemoryError", re.IGNORECASE)
"""Pattern of the messages that libraries print before they end their process for want of memory."""
_END_SECONDS = 1.0
"""Time in which a process that has closed its output has ended."""


class CompilerProcess:
    """One child process. A failure of any kind ends it.

    Args:
        meanwhile: Called while the process starts, which takes about as long as to read a vocabulary.
    """

    def __init__(self, order: Order, meanwhile: Callable[[], object] = lambda: None) -> None:
        # -P: a folder named `core` in the working directory must not take the place of the installed package.
        command = [sys.executable, "-P", "-m", "core_plugin_structured.compiling.child"]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  it lives as long as the process
        pipe = subprocess.PIPE
        # A program may have put plugins on its own path; the plan's are the same everywhere.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, bufsize=0, env=env)
        try:
            self._send(order)
            meanwhile()
            if self._receive(Turn(START_SECONDS)).state != "ready":
                raise OSError("its first answer is wrong")
        except (OSError, ValueError) as error:
            raise BrokenCompilerError(f"its process {self.ending()}") from error
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, task: Task, turn: Turn) -> Answer:
        """Return what became of a grammar.

        Raises:
            TimeoutError: The time is over.
            AbandonedError: Nobody waits for it any more.
            OSError: The process is gone.
        """
        self._send(task)
        return self._receive(turn)

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process.wait()

    def ending(self) -> str:
        """Close a process that does not answer any more; return how it ended and what it printed last, in one line."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        status, words = self._process.returncode, self._last_words()
        self.close()
        return f"{'does not answer' if status is None else _ending(status)}{words}"

    def _last_words(self) -> str:
        """Return the last line that the process printed, or the one that says that there was no memory."""
        try:
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - _LAST_WORDS))
            lines = self._said.read().decode("utf-8", "replace").split("\n")
        except (OSError, ValueError):  # it was closed before
            return ""
        told = [line.strip() for line in lines if line.strip()]
        last = next((line for line in told if NO_MEMORY.search(line)), told[-1] if told else "")
        return f": {last[:300]}" if last else ""

    def _send(self, message: msgspec.Struct) -> None:
        data = msgspec.msgpack.encode(message)
        view = memoryview(HEAD.pack(len(data)) + data)
        stdin = self._process.stdin
        while stdin is not None and view:
            view = view[stdin.write(view) :]

    def _receive(self, turn: Turn) -> Answer:
        deadline = time.monotonic() + turn.seconds
        head = self._read(HEAD.size, deadline, turn)
        return msgspec.msgpack.decode(self._read(HEAD.unpack(head)[0], deadline, turn), type=Answer)

    def _read(self, count: int, deadline: float, turn: Turn) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise OSError("it has no output")
        chunks: list[bytes] = []
        while count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if not select.select([stdout], [], [], min(left, _LOOK_SECONDS))[0]:
                if not turn.wanted():
                    raise AbandonedError("nobody waits for it any more")
                continue
            chunk = os.read(stdout.fileno(), min(count, 2**20))
            if not chunk:
                raise OSError("it ended")
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)


class IsolatedCompiler:
    """Compiles in child processes, started when they are first needed; what came out well is brought into this one.

    Args:
        bring: Makes a compiled grammar in this process, of its kind, its value, and the `dump` of a child's.
        prepare: Loads what that needs; called while a child starts, so that the first grammar does not wait for both.
    """

    def __init__(
        self,
        order: Order,
        bring: Callable[[str, str, bytes], CompiledGrammar],
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self._order, self._bring, self._prepare = order, bring, prepare
        self._idle: queue.SimpleQueue[CompilerProcess] = queue.SimpleQueue()
        self._busy: set[CompilerProcess] = set()
        self._closed = False

    def compile(self, kind: str, value: str, turn: Turn) -> tuple[CompiledGrammar, int]:
        """Compile a grammar; called from as many threads as there may be processes.

        Returns:
            The compiled grammar, and the bytes that it took where it was tried.

        Raises:
            OutOfTimeError: Its time was over; the process was killed.
            AbandonedError: Nobody waits for it any more; the process was killed.
            ValueError: The grammar cannot be used; a process that it broke was replaced.
            MemoryError: It needs more memory than it is given.
            BrokenCompilerError: The backend failed on it, or cannot be started.
        """
        answer = self._ask(Task(kind, value), turn)
        if answer.state == "refused":
            raise ValueError(answer.text)
        if answer.state == "exhausted":
            raise MemoryError("was refused more")
        if answer.state == "failed":
            raise BrokenCompilerError(answer.text)
        turn.room(answer.size)
        return self._bring(kind, value, answer.data), answer.size

    def close(self) -> None:
        """End the processes, those that are compiling too."""
        self._closed = True
        for process in list(self._busy):
            process.close()
        while not self._idle.empty():
            self._idle.get().close()

    def _ask(self, task: Task, turn: Turn) -> Answer:
        if not task.value.isascii():
            task.value.encode()  # half a surrogate pair is no character, and a ValueError
        process = self._take()
        keep = False
        try:
            answer = process.ask(task, turn)
            keep = answer.state != "exhausted" and answer.size < _LARGE
            return answer
        except TimeoutError:
            raise OutOfTimeError(f"compiling it took more than {turn.seconds:g} seconds") from None
        except AbandonedError:
            raise
        except (OSError, ValueError) as error:  # a pipe that was closed is a ValueError
            how = "" if self._closed else process.ending()
            if NO_MEMORY.search(how):
                raise MemoryError(how) from None
            if how:
                logger.warning("the process that compiles grammars for '%s' %s", self._order.name, how)
            raise ValueError("the compiler broke on it") from error
        finally:
            self._busy.discard(process)
            self._give(process) if keep else process.close()

    def _take(self) -> CompilerProcess:
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = CompilerProcess(self._order, self._prepare)
        self._busy.add(process)
        return process

    def _give(self, process: CompilerProcess) -> None:
        if self._closed:
            process.close()
        else:
            self._idle.put(process)


def _ending(status: int) -> str:
    """Return how a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by signal {-status} ({signal.strsignal(-status)})"
