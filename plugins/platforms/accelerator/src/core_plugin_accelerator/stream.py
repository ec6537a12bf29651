"""Ordered execution: one thread that enqueues on the device's current stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from core.api.errors import EngineError
from core_plugin_accelerator.faults import device_faults

T = TypeVar("T")


class DeviceStream:
    """A thread whose operations go to a device, in order, under inference mode.

    Args:
        threads: Compute threads of the host; None leaves them as they are.
    """

    def __init__(self, module: Any, device: torch.device, threads: int | None = None) -> None:
        self._module, self._device = module, device
        self._pool = ThreadPoolExecutor(1, "device-stream", initializer=self._prepare, initargs=(threads,))

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work`; its future returns what it returned or raises what it raised."""
        try:
            return self._pool.submit(self._run, work)
        except RuntimeError as error:
            raise EngineError("CORE-E125", f"The device's stream takes no more work: {error}.") from error

    def close(self) -> None:
        """Drop what has not begun and wait for what runs. May be called again."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _prepare(self, threads: int | None) -> None:
        # Both are kept for each thread.
        if threads is not None:
            torch.set_num_threads(threads)
        self._module.set_device(self._device.index or 0)

    def _run(self, work: Callable[[], T]) -> T:
        module = self._module
        with torch.inference_mode(), device_faults(), module.stream(module.current_stream(self._device)):
            return work()
