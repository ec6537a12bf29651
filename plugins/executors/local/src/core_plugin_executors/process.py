"""The worker in a process of its own: steps go over a local socket and are answered in their order."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from core.api import CoreError, EngineError, MessageDecoder, encode_message
from core_plugin_executors.host import Host
from core_plugin_executors.messages import Call, Failed, FromChild, Late, Launch, Loading, Returned, Started, Stop
from core_plugin_executors.options import ExecutorOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import ExecutorSetup, Pending, StepPlan, StepResult, WorkerInfo

T = TypeVar("T")


class Ticket(Generic[T]):
    """One thing asked of the child. Waiting for it takes in every answer before its own."""

    def __init__(self, executor: SubprocessExecutor) -> None:
        self._executor = executor
        self.value: T | None = None
        self.error: dict[str, Any] | None = None
        self.done = False

    def settle(self, value: T | None, error: dict[str, Any] | None = None) -> None:
        """Store the outcome."""
        self.value, self.error, self.done = value, error, True

    def result(self) -> T:
        """Wait, and return the value or raise the worker's error."""
        self._executor.wait_for(self)
        if self.error is not None:
            raise CoreError.from_dict(self.error)
        return self.value  # type: ignore[return-value]


class SubprocessExecutor:
    """One worker in a child process. Calls from several threads are served one after the other."""

    def __init__(self, setup: ExecutorSetup) -> None:
        self._setup = setup
        self._decoder: MessageDecoder[FromChild] = MessageDecoder(FromChild)
        self._lock = threading.RLock()
        self._tickets: deque[Ticket[Any]] = deque()
        self._host: Host | None = None
        self._failure: EngineError | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the worker, None when there is none."""
        return self._host.pid if self._host else None

    def start(self) -> WorkerInfo:
        """Start the child and wait until its worker is ready. Raises the worker's error if it cannot start."""
        options = ExecutorOptions.model_validate(self._setup.options)
        self._host = Host(self._setup.opener.dumps(), options.close_timeout)
        ticket: Ticket[WorkerInfo] = Ticket(self)
        self._tickets.append(ticket)
        timeout = self._setup.start_timeout
        try:
            self.wait_for(ticket, deadline=time.monotonic() + timeout)
            return ticket.result()
        except TimeoutError:
            reason = f"The worker process {self.pid} was not ready within {timeout:g} seconds."
            raise EngineError("CORE-E134", reason, hint="Raise --start-timeout if loading is slow.") from None
        finally:
            if ticket.error is not None or not ticket.done:
                self.close()

    def launch(self, plan: StepPlan) -> Pending[StepResult]:
        """Send a step and return at once."""
        return self._ask(Launch(plan))

    def late(self, number: int, parts: Mapping[str, Any]) -> None:
        """Send a step the late parts that it waits for."""
        data = encode_message(Late(number, dict(parts)))
        with self._lock:
            if self._host is not None:
                self._host.send(data)

    def call(self, method: str, *args: Any) -> Any:
        """Call a worker method after every step launched so far."""
        return self._ask(Call(method, list(args))).result()

    def healthy(self) -> bool:
        """Whether the child runs, moves on, and has not failed."""
        host = self._host
        return host is not None and self._failure is None and host.moves()

    def close(self) -> None:
        """End the child: by asking, then by force. What is still pending fails. Closing twice is harmless."""
        with self._lock:
            host, self._host = self._host, None
            if host is None:
                return
            if host.alive():
                host.send(encode_message(Stop()))
            host.close()
            self._fail(EngineError("CORE-E133", "The worker process was closed before it answered."))

    def wait_for(self, ticket: Ticket[Any], deadline: float | None = None) -> None:
        """Take in answers until `ticket` has its own. Raises `TimeoutError` when the deadline passes."""
        with self._lock:
            while not ticket.done:
                self._take_in(deadline)

    def _ask(self, message: Launch | Call) -> Ticket[Any]:
        data = encode_message(message)
        with self._lock:
            if self._failure is not None:
                raise CoreError.from_dict(self._failure.to_dict())
            if self._host is None:
                reason = "The subprocess executor has no running worker: it is not started, or closed."
                raise EngineError("CORE-E133", reason)
            ticket: Ticket[Any] = Ticket(self)
            self._tickets.append(ticket)
            self._host.send(data)
            return ticket

    def _take_in(self, deadline: float | None) -> None:
        if self._host is None:
            raise EngineError("CORE-E133", "The subprocess executor is closed.")
        data = self._host.receive(deadline)
        if data is None:
            self._fail(self._host.obituary())
            return
        match self._decoder.decode(data):
            case Loading(done, total):
                self._setup.on_progress(done, total)
            case Failed(error):
                self._tickets.popleft().settle(None, error)
            case Started(answer) | Returned(answer):
                self._tickets.popleft().settle(answer)
            case stepped:
                self._tickets.popleft().settle(stepped.result)

    def _fail(self, error: EngineError) -> None:
        """Nothing more will come: give everyone who waits the reason."""
        self._failure = error
        while self._tickets:
            self._tickets.popleft().settle(None, error.to_dict())
