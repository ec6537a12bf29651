"""Engines that run on their own: in a child process, or in a thread of this one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from core.api.errors import CoreError, EngineError
from core.config.resolved import EngineConfig
from core.engine.child import LOOP_STACK, STACKS, EngineChild
from core.engine.core import EngineCore
from core.engine.inbound import Inbound, read_from_engine
from core.engine.messages import Failed, FromEngine, Progress, Pulse, Ready, Shutdown, ToEngine
from core.engine.runner import CoreRunner
from core.engine.vitals import Vitals

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.2
"""How often a process is looked after."""

STOP_SECONDS = 10.0
"""How long a process gets to end after `Shutdown` before it is killed."""


def _rebuild(failed: Failed) -> CoreError:
    error = CoreError.from_dict(failed.error)
    error.add_note(f"In the engine:\n{failed.error.get('traceback', '')}")
    return error


class ProcessEngine:
    """`AsyncEngine` whose core runs in a child process, reached over ZeroMQ on private ipc sockets."""

    ready: Ready

    def __init__(self, config: EngineConfig, child: EngineChild | None = None) -> None:
        self._child = child or EngineChild()
        self._process = self._child.process
        self._child.configure(config)
        self._context = zmq.asyncio.Context()
        # A plain socket on the same context: sending never awaits.
        self._inbox: zmq.Socket[bytes] = zmq.Context.shadow(self._context.underlying).socket(zmq.PUSH)
        self._outbox = self._context.socket(zmq.PULL)
        try:
            for socket, address in ((self._inbox, self._child.inbox), (self._outbox, self._child.outbox)):
                socket.set_hwm(0)
                socket.bind(address)
        except BaseException:
            self._child.end()
            raise
        self._encoder = msgspec.msgpack.Encoder()
        self._inbound: Inbound[FromEngine] = Inbound(FromEngine, config.shape.vocab_size)
        self._death: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch = asyncio.create_task(self._watch_process())
        self._receiving: asyncio.Future[bytes] | None = None
        self._vitals: Vitals | None = None
        self._hang_timeout = config.options.runtime.engine_hang_timeout
        self._stuck = self._closing = False
        self._hung = 0.0

    @property
    def pid(self) -> int:
        """Process id of the engine."""
        return self._process.pid

    async def _watch_process(self) -> None:
        while self._child.poll() is None:
            await asyncio.sleep(TICK_SECONDS)
            # A start takes as long as it takes, and silence is what somebody waits through.
            if self._vitals is not None and self._receiving is not None and not self._receiving.done():
                self._look_after(self._vitals)
        if not self._death.done():
            self._death.set_result(None)

    def _look_after(self, vitals: Vitals) -> None:
        """Have the stacks of a process that does not move written, once, and end it when its time is over."""
        before = self._stuck
        vitals.tick(TICK_SECONDS)
        self._stuck = vitals.stuck
        if self._stuck and not before:
            who = "a worker of the engine" if vitals.workers else "the engine"
            text = "%s (process %d) has not moved for %.0f s; the stacks of the engine's threads follow"
            logger.error(text, who, self.pid, vitals.still)
            self._process.send_signal(LOOP_STACK)
            self._process.send_signal(STACKS)
        if 0 < self._hang_timeout <= vitals.still:
            self._hung = vitals.still
            self._process.kill()

    def send(self, message: ToEngine) -> None:
        """Hand over a message; never blocks. Raises `EngineError` if the process is gone."""
        if self._child.poll() is not None:
            raise self._gone()
        self._inbox.send(self._encoder.encode(message), zmq.NOBLOCK)

    async def receive(self) -> FromEngine:
        """Return the next message that can be read. Raises the engine's own error, or `EngineError`: it is gone."""
        while (message := self._read(await self._next())) is None or isinstance(message, Pulse):
            continue
        if isinstance(message, Failed):
            raise _rebuild(message)
        return message

    async def _next(self) -> bytes:
        """Return what comes next. Raises `EngineError` once the process is gone and nothing is left."""
        if self._receiving is None:
            self._receiving = asyncio.ensure_future(self._outbox.recv())
        waiting: list[asyncio.Future[Any]] = [self._receiving, self._death]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not self._receiving.done():  # the process is gone; whatever it still sent arrives within moments
            await asyncio.wait(waiting[:1], timeout=0.5)
        if not self._receiving.done():
            raise self._gone()
        data = self._receiving.result()
        self._receiving = None
        return data

    def _read(self, data: bytes) -> FromEngine | None:
        """Return the message in `data` and note that the engine moves; None for one that was dropped, and counted."""
        message = read_from_engine(self._inbound, data)
        if isinstance(message, Ready):
            self._vitals = Vitals()
        elif message is not None and self._vitals is not None:
            self._vitals.seen(message)
        return message

    def connected(self) -> bool:
        """Whether messages can be sent: until then nobody listens. Raises `EngineError` once the process is gone."""
        if self._child.poll() is not None:
            raise self._gone()
        return bool(self._inbox.poll(0, zmq.POLLOUT))

    def _gone(self) -> EngineError:
        status = self._child.poll()
        if self._hung:
            text = f"the engine process did not move for {self._hung:.0f} s and was ended."
            return EngineError("CORE-E182", text, hint="The log has the stacks of its threads (--engine-hang-timeout).")
        how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        return EngineError("CORE-E110", f"the engine process {how}.", hint="Restart the server.")

    def alive(self) -> bool:
        """Whether the process lives and moves on."""
        return self._child.poll() is None and not self._stuck

    async def close(self) -> None:
        """Stop the process, forcefully if it does not follow, and remove the sockets."""
        if self._closing:
            return
        self._closing = True
        self._ask_to_stop()
        try:
            await asyncio.wait_for(asyncio.shield(self._death), STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            self._process.wait()
        self._watch.cancel()
        if self._receiving is not None:
            self._receiving.cancel()
        for socket in (self._inbox, self._outbox):
            socket.close(linger=0)
        self._context.term()
        self._child.end()

    def _ask_to_stop(self) -> None:
        """Send `Shutdown`, or close the child's standard input if it does not listen yet."""
        try:
            self._inbox.send(self._encoder.encode(Shutdown()), zmq.NOBLOCK)
        except zmq.Again:
            self._child.close_input()


class ThreadEngine:
    """`AsyncEngine` whose core runs in a thread of this process (tests, notebooks)."""

    def __init__(self, core: EngineCore) -> None:
        self.ready = core.ready
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._messages: deque[FromEngine] = deque()
        self._arrived = asyncio.Event()
        self._error: BaseException | None = None
        self._runner = CoreRunner(core, self._emit)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._runner.run()
        except BaseException as error:
            logger.exception("the engine thread failed")
            self._error = error
        finally:
            self._core.close()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._arrived.set)

    def _emit(self, message: FromEngine) -> None:
        self._messages.append(message)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrived.set)

    def send(self, message: ToEngine) -> None:
        """Hand over a message. Raises `EngineError` if the thread has ended."""
        if not self._thread.is_alive():
            raise self._gone()
        self._runner.submit(message)

    async def receive(self) -> FromEngine:
        """Return the next message. Raises `EngineError` once the thread has ended and all were read."""
        while not self._messages:
            if not self._thread.is_alive():
                raise self._gone()
            await self._arrived.wait()
            self._arrived.clear()
        return self._messages.popleft()

    def _gone(self) -> EngineError:
        cause = f": {self._error}" if self._error else ""
        return EngineError("CORE-E111", f"the engine thread has ended{cause}")

    def alive(self) -> bool:
        """Whether the engine's thread lives."""
        return self._thread.is_alive()

    async def close(self) -> None:
        """Stop the thread and the workers."""
        self._runner.submit(Shutdown())
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)


async def start_process(
    config: EngineConfig, on_progress: Callable[[Progress], None] | None = None, child: EngineChild | None = None
) -> ProcessEngine:
    """Start an engine process and wait until it is ready, reporting weight-loading progress on the way.

    Args:
        child: A process that was started ahead; it is ended with the engine. None starts one.
    """
    engine = ProcessEngine(config, child)
    try:
        async with asyncio.timeout(config.options.runtime.start_timeout):
            while not isinstance(message := await engine.receive(), Ready):
                if isinstance(message, Progress) and on_progress is not None:
                    on_progress(message)
            # The engine's two sockets connect on their own: the one that listens may be the later.
            while not engine.connected():
                await asyncio.sleep(0.002)
    except TimeoutError:
        await engine.close()
        seconds = config.options.runtime.start_timeout
        raise EngineError(
            "CORE-E112", f"the engine was not ready after {seconds:g} s.", hint="Raise --start-timeout."
        ) from None
    except BaseException:
        await engine.close()
        raise
    engine.ready = message
    return engine
