"""Ordered execution on a device that has no streams of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

from core.api.errors import EngineError
from core_plugin_cpu.binding import restrict

T = TypeVar("T")


class ThreadStream:
    """One thread that runs what is submitted, in order, under inference mode.

    Args:
        threads: Compute threads of the kernels that the work calls.
        cpus: Processors to run on; the compute threads are started from here and follow. None leaves that open.
    """

    def __init__(self, threads: int, cpus: Collection[int] | None = None) -> None:
        self._pool = ThreadPoolExecutor(1, "cpu-stream", initializer=_prepare, initargs=(threads, cpus))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work`; its future returns what it returned or raises what it raised."""
        try:
            return self._pool.submit(_run, work)
        except RuntimeError as error:
            raise EngineError("CORE-E125", f"The CPU stream does not take work any more: {error}.") from error

    def close(self) -> None:
        """Drop what has not begun and wait for what runs. May be called again."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _prepare(threads: int, cpus: Collection[int] | None) -> None:
    # OpenMP keeps the thread count per calling thread: set it where the work runs, not only where it is submitted.
    torch.set_num_threads(threads)
    if cpus is not None:
        restrict(cpus)


def _run(work: Callable[[], T]) -> T:
    with torch.inference_mode():
        return work()
