"""The worker's process: `python -m core_plugin_executors.child`.

Standard input brings three lines, the socket's address, the descriptor for signs of life and the opener of the worker,
and then stays open: its end means that the parent is gone, however it went.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections import deque
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from core.api import CoreError, Done, EngineError, MessageDecoder, encode_message, load_opener
from core_plugin_executors.messages import (
    Call,
    Failed,
    Late,
    Launch,
    Loading,
    Returned,
    Started,
    Stepped,
    Stop,
    ToChild,
    describe,
)
from core_plugin_executors.signs import give_signs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import Pending, StepResult, Worker, WorkerOpener


class Link:
    """This side of the socket; any thread may send."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._decoder: MessageDecoder[ToChild] = MessageDecoder(ToChild)
        self._lock = threading.Lock()
        self._passed: deque[ToChild] = deque()  # came while a step waited for its late parts

    def receive(self) -> ToChild:
        """Wait for the next message."""
        return self._passed.popleft() if self._passed else self._decoder.decode(self._socket.recv())

    def late(self, number: int) -> Mapping[str, Any]:
        """Wait for the late parts of step `number`, which runs; what comes before them is kept for `receive`."""
        while True:
            message = self._decoder.decode(self._socket.recv())
            if not isinstance(message, Late):
                self._passed.append(message)
            elif message.number == number:
                return message.parts
            if isinstance(message, Stop):
                raise EngineError("CORE-E133", "The worker was closed before the late parts of its step came.")

    def send(self, data: bytes) -> None:
        """Queue an encoded message."""
        with self._lock:
            self._socket.send(data)

    def progress(self, done: int, total: int) -> None:
        """Report loaded bytes."""
        self.send(encode_message(Loading(done, total)))


def answer(worker: Worker, message: Launch | Call, link: Link) -> Pending[bytes]:
    """Do, or begin, what a message asks; an error of it is the answer, not the end."""
    try:
        if isinstance(message, Call):
            return Done(encode_message(Returned(worker.call(message.method, *message.args))))
        further = (partial(link.late, message.plan.number),) if message.plan.late else ()
        begun = Begun(worker.begin(message.plan, *further))
        return Done(begun.result()) if isinstance(begun.step, Done) else begun
    except Exception as error:
        return Done(failure(error, "a step" if isinstance(message, Launch) else f"call {message.method}"))


class Begun(NamedTuple):
    """The answer to a step that goes on by itself."""

    step: Pending[StepResult]

    def result(self) -> bytes:
        """Wait for the step and return the message about it."""
        try:
            return encode_message(Stepped(self.step.result()))
        except Exception as error:
            return failure(error, "a step")


class Outbox:
    """Sends answers in their order, at once where they are there; else a thread waits, so that messages are taken on.

    A worker whose steps are done when they have begun never starts the thread.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: SimpleQueue[Pending[bytes] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._open = 0

    def add(self, answer: Pending[bytes]) -> None:
        """Send an answer behind those added before."""
        if not self._open and isinstance(answer, Done):
            self._link.send(answer.result())
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._send, name="answers", daemon=True)
            self._thread.start()
        with self._lock:
            self._open += 1
        self._waiting.put(answer)

    def close(self) -> None:
        """Send what is left."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()

    def _send(self) -> None:
        while (answer := self._waiting.get()) is not None:
            self._link.send(answer.result())
            with self._lock:
                self._open -= 1


def failure(error: Exception, doing: str) -> bytes:
    """Return the message about `error`; one that nobody foresaw also leaves its traceback on standard error."""
    if not isinstance(error, CoreError):
        traceback.print_exc()
    return encode_message(Failed(describe(error, doing)))


def serve(opener: WorkerOpener, link: Link) -> int:
    """Start the worker and answer until `Stop`. Returns the exit status."""
    with contextlib.ExitStack() as stack:
        try:
            worker = opener.open(link.progress)
            stack.callback(worker.close)
            started = encode_message(Started(worker.start()))
        except Exception as error:
            link.send(failure(error, "its start"))
            return 1
        link.send(started)
        outbox = Outbox(link)
        stack.callback(outbox.close)
        while not isinstance(message := link.receive(), Stop):
            if not isinstance(message, Late):  # those of a step that failed before it asked for them
                outbox.add(answer(worker, message, link))
    return 0


def watch_parent(folder: Path) -> None:
    """End this process, in the middle of a step if need be, when the parent's end of standard input is closed."""
    while os.read(0, 4096):
        pass
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    os._exit(1)


def main() -> int:
    """Connect, serve, and return the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides when to stop.
    address, signs, opener = sys.stdin.readline().rstrip("\n"), int(sys.stdin.readline()), sys.stdin.readline()
    folder = Path(address.removeprefix("ipc://")).parent
    for target, args in ((watch_parent, (folder,)), (give_signs, (signs,))):
        threading.Thread(target=target, args=args, name=target.__name__, daemon=True).start()
    with zmq.Context() as context, context.socket(zmq.PAIR) as socket:
        socket.connect(address)
        return serve(load_opener(opener), Link(socket))


if __name__ == "__main__":
    sys.exit(main())
