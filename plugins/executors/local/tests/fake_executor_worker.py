"""A worker without a model, for the executors' tests; also imported by child processes."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from core.api import AllowedTokens, CheckpointError, Done, EngineError, StepResult, WorkerInfo
from core.api.wire import restored


class FakeStream:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def submit(self, work: Any) -> Any:
        return self._pool.submit(work)

    def close(self) -> None:
        self._pool.shutdown()


class FakeWorker:
    """Doubles each count into a token. `mode` says how it misbehaves."""

    def __init__(self, mode: str, on_progress: Any) -> None:
        self.mode = mode
        self.on_progress = on_progress
        self.steps: list[int] = []
        self.closed = False

    def start(self) -> WorkerInfo:
        if self.mode == "bad checkpoint":
            raise CheckpointError("CORE-M199", "tensor w is missing.", hint="Download it again.")
        if self.mode == "bug at start":
            raise ZeroDivisionError("by nought")
        if self.mode == "exit at start":
            os._exit(3)
        if self.mode == "slow start":
            time.sleep(60)
        self.on_progress(1, 2)
        self.on_progress(2, 2)
        return WorkerInfo(4, 64, {"mode": self.mode, "pid": str(os.getpid())}, [("load", 0.5)])

    def stream(self) -> FakeStream:
        return FakeStream()

    def begin(self, plan: Any, late: Any = None) -> Done[StepResult]:
        self.steps.append(plan.number)
        if self.mode == "sleepy":
            time.sleep(60)
        if plan.number == 99:
            raise EngineError("CORE-E199", "step 99 fails.")
        if plan.number == 98:
            raise KeyError("step 98")
        if late is not None:
            given = restored(late()["fence"], AllowedTokens, "fence")
            return Done(StepResult(plan.number, np.concatenate([given.rows, given.bits.ravel()])))
        return Done(StepResult(plan.number, np.asarray(plan.counts * 2, np.int32), parts=dict(plan.parts)))

    def call(self, method: str, *args: Any) -> Any:
        if method == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if method == "exit":
            os._exit(int(args[0]))
        if method == "unplain":
            return object()
        if method == "steps":
            return self.steps
        if method == "mark":
            self.mark = args[0]
        return [method, *args]

    def close(self) -> None:
        self.closed = True
        if hasattr(self, "mark"):
            Path(self.mark).write_text("closed")


class FakeOpener:
    """Opens such workers, wherever it travels."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def open(self, on_progress: Any) -> FakeWorker:
        return FakeWorker(self.mode, on_progress)

    def dumps(self) -> str:
        return f"fake_executor_worker:FakeOpener {self.mode}"
