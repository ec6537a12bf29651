"""The engine process: `python -m core.engine.process`, started by `EngineChild`.

It begins before its parent knows what to run. Then the parent writes one JSON line to standard input (socket addresses,
the engine configuration) and keeps the pipe open: end of file means that the parent is gone, and the process ends too.
Three threads share the work:

    receiver   ZeroMQ -> decode -> the runner's queue
    main       the engine's loop
    sender     queue -> encode -> ZeroMQ
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import zmq

from core import logs, phases
from core.api.errors import CoreError, EngineError
from core.config.resolved import EngineConfig
from core.engine.child import LOOP_STACK, STACKS, Bootstrap
from core.engine.core import EngineCore
from core.engine.inbound import Inbound
from core.engine.messages import Failed, FromEngine, Pulse, ToEngine
from core.engine.readahead import read_ahead
from core.engine.runner import CoreRunner

logger = logging.getLogger(__name__)

PULSE_SECONDS = 1.0
"""A process that has nothing else to say says so this often, whatever its loop does."""


class Sender(threading.Thread):
    """Encodes and sends queued messages, so that the loop never waits for a socket.

    Attributes:
        pulse: Says how the loop fares, once there is one; asked where nothing else was sent for a second.
    """

    def __init__(self, address: str) -> None:
        super().__init__(name="engine-sender", daemon=True)
        # A context of its own: to end it is to wait until what was sent has left the process.
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PUSH)
        self._socket.set_hwm(0)
        self._socket.connect(address)
        self._queue: queue.SimpleQueue[FromEngine | None] = queue.SimpleQueue()
        self.pulse: Callable[[], Pulse | None] = lambda: None

    def put(self, message: FromEngine) -> None:
        """Queue a message; safe from any thread."""
        self._queue.put(message)

    def run(self) -> None:
        """Send until `finish`."""
        encoder = msgspec.msgpack.Encoder()
        while True:
            message: FromEngine | None
            try:
                if (message := self._queue.get(timeout=PULSE_SECONDS)) is None:
                    break
            except queue.Empty:
                message = self.pulse()
            if message is not None:
                self._socket.send(encoder.encode(message))
        self._socket.close(linger=2000)
        self._context.term()

    def finish(self) -> None:
        """Send what is queued and end the thread; the last message is often why the process ends."""
        self._queue.put(None)
        self.join(timeout=3)


class Receiver(threading.Thread):
    """Decodes what arrives and hands it to the runner. A message that cannot be read is dropped, logged and counted."""

    def __init__(self, address: str) -> None:
        super().__init__(name="engine-receiver", daemon=True)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.set_hwm(0)
        self._socket.connect(address)
        self.runner: CoreRunner | None = None

    def run(self) -> None:
        """Receive for the life of the process."""
        inbound: Inbound[ToEngine] = Inbound(ToEngine)
        while True:
            message = inbound.read(self._socket.recv())
            if self.runner is None:
                continue
            if message is None:
                self.runner.note_dropped(inbound.dropped)
            else:
                self.runner.submit(message)


def _watch_parent() -> None:
    """End the process when standard input closes: whoever started it is gone."""
    sys.stdin.buffer.read()
    os._exit(0)


def show_stacks_when_asked() -> None:
    """Write stacks to standard error at the signals `LOOP_STACK`, one thread's, and `STACKS`, those of all threads.

    The latter by a thread that has the interpreter's lock: a signal's handler has not, and would read stacks that
    others change meanwhile; a process that was stopped and goes on died of it.
    """
    faulthandler.register(LOOP_STACK, all_threads=False)
    asked, ask = os.pipe()
    os.set_blocking(ask, False)
    signal.signal(STACKS, lambda number, frame: None)
    signal.set_wakeup_fd(ask, warn_on_full_buffer=False)  # told whichever thread the system interrupts
    threading.Thread(target=_write_stacks, args=(asked,), name="engine-stacks", daemon=True).start()


def _write_stacks(asked: int) -> None:
    while True:
        if STACKS in os.read(asked, 1):
            faulthandler.dump_traceback()


def _failure(error: BaseException) -> Failed:
    if not isinstance(error, CoreError):
        error_ = EngineError("CORE-E101", f"the engine failed: {type(error).__name__}: {error}")
        fields = error_.to_dict()
    else:
        fields = error.to_dict()
    return Failed({**fields, "traceback": traceback.format_exc()})


def _serve(core: EngineCore, sender: Sender, receiver: Receiver) -> None:
    runner = CoreRunner(core, sender.put, fit=lambda: sender.is_alive() and receiver.is_alive())
    receiver.runner = runner
    receiver.start()
    sender.pulse = lambda: runner.pulse() if receiver.is_alive() else None
    core.active.events("ready", {})
    # Start-up objects live for the whole process: keep the collector from walking them again and again. To look for
    # garbage among them first would find some thousand of a million, and make whoever waits for "ready" wait for it.
    gc.freeze()
    gc.enable()
    sender.put(core.ready)
    try:
        runner.run()
    finally:
        core.close()


def main() -> int:
    """Run the engine process; the exit status is 0 after an orderly shutdown, or when nothing was to be run."""
    # Ctrl-C and service managers signal the whole group; the parent decides what it means and when the engine stops.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})  # were held back until now
    # Imports make a million objects that stay; looking through them for garbage takes a tenth of the start.
    gc.disable()
    faulthandler.enable()
    show_stacks_when_asked()
    waited = time.perf_counter()
    line = sys.stdin.buffer.readline()
    waited = time.perf_counter() - waited
    if not line:
        return 0
    bootstrap = msgspec.json.decode(line, type=Bootstrap)
    logs.setup(bootstrap.log_level, bootstrap.log_format, process="engine")
    phases.report_birth("interpreter and imports", ago=waited)
    phases.report("wait for the configuration", waited)
    return _run(bootstrap)


def _run(bootstrap: Bootstrap) -> int:
    threading.Thread(target=_watch_parent, name="engine-parent", daemon=True).start()
    sender = Sender(bootstrap.outbox)
    sender.start()
    try:
        config = EngineConfig.received(bootstrap.config)
        if config.plan.one("core.weight_stores") is None:  # whose files are read instead, if it has them
            read_ahead(Path(config.checkpoint.path))
        core = EngineCore.start(config, on_progress=sender.put)
        _serve(core, sender, Receiver(bootstrap.inbox))
    except BaseException as error:
        sender.put(_failure(error))
        return 1
    finally:
        sender.finish()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # daemon threads hold sockets; an orderly interpreter exit would wait for them
