"""This side of compilers in processes of their own."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from core.api.structured import CompiledGrammar
from core.engine.compiling.child import HEAD, Answer, Order, Task

START_SECONDS = 60.0
"""Time that a process may take until it is ready to compile."""


class CompilerProcess:
    """One child process. A failure of any kind ends it."""

    def __init__(self, order: Order) -> None:
        # -P: a folder named `core` in the working directory must not take the place of the installed package.
        command = [sys.executable, "-P", "-m", "core.engine.compiling.child"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        try:
            self._send(order)
            if self._receive(START_SECONDS).state != "ready":
                raise OSError("its first answer is wrong")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def ask(self, task: Task, seconds: float) -> Answer:
        """Return what became of a grammar. Raises `TimeoutError`, or `OSError` when the process is gone."""
        self._send(task)
        return self._receive(seconds)

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        self._process.wait()

    def _send(self, message: msgspec.Struct) -> None:
        data = msgspec.msgpack.encode(message)
        view = memoryview(HEAD.pack(len(data)) + data)
        stdin = self._process.stdin
        while stdin is not None and view:
            view = view[stdin.write(view) :]

    def _receive(self, seconds: float) -> Answer:
        deadline = time.monotonic() + seconds
        head = self._read(HEAD.size, deadline)
        return msgspec.msgpack.decode(self._read(HEAD.unpack(head)[0], deadline), type=Answer)

    def _read(self, count: int, deadline: float) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise OSError("it has no output")
        chunks: list[bytes] = []
        while count:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([stdout], [], [], left)[0]:
                raise TimeoutError
            chunk = os.read(stdout.fileno(), min(count, 2**20))
            if not chunk:
                raise OSError("it ended")
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)


class IsolatedCompiler:
    """Compiles in child processes, started when they are first needed, and loads what they give.

    Args:
        load: The backend's `load`, in this process.
    """

    def __init__(self, order: Order, load: Callable[[bytes], CompiledGrammar]) -> None:
        self._order, self._load = order, load
        self._idle: queue.SimpleQueue[CompilerProcess] = queue.SimpleQueue()
        self._busy: set[CompilerProcess] = set()
        self._closed = False

    def compile(self, kind: str, value: str) -> CompiledGrammar:
        """Compile a grammar; called from as many threads as there may be processes.

        Raises:
            ValueError: The grammar cannot be used; a process that it stopped or broke was killed.
        """
        process = self._take()
        try:
            answer = process.ask(Task(kind, value), self._order.seconds)
        except TimeoutError:
            process.close()
            raise ValueError(f"compiling it took more than {self._order.seconds:g} seconds") from None
        except (OSError, ValueError) as error:  # a pipe that was closed is a ValueError
            process.close()
            raise ValueError("the compiler broke on it") from error
        except BaseException:
            process.close()
            raise
        finally:
            self._busy.discard(process)
        self._give(process)
        if answer.state == "compiled":
            return self._load(answer.data)
        if answer.state == "refused":
            raise ValueError(answer.text)
        raise RuntimeError(answer.text)

    def close(self) -> None:
        """End the processes, those that are compiling too."""
        self._closed = True
        for process in list(self._busy):
            process.close()
        while not self._idle.empty():
            self._idle.get().close()

    def _take(self) -> CompilerProcess:
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = CompilerProcess(self._order)
        self._busy.add(process)
        return process

    def _give(self, process: CompilerProcess) -> None:
        if self._closed:
            process.close()
        else:
            self._idle.put(process)
