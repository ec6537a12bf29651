"""How the worker's host side and its device meet: in one memory, or by copies through the device's queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from core.api.platform import Done

if TYPE_CHECKING:
    from core.api.platform import Pending, Queue

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Transfers:
    """Copies between host and device.

    Attributes:
        device: Where tensors are made.
        apart: The device has memory of its own.
        queue: The device's queue; None: an operation is done when its call returns.
        areas: Staging areas of the host, one for each step that may be enqueued while another is written.
    """

    device: torch.device
    apart: bool = False
    queue: Queue | None = None
    areas: int = 1

    def upload(self, array: np.ndarray) -> Tensor:
        """Return an array on the device, without waiting; on a host platform in the same memory.

        Where there is no queue the array must not be written again: it is the tensor, or is read later.
        """
        tensor = torch.from_numpy(array)
        if self.queue is None:
            return tensor.to(self.device, non_blocking=True) if self.apart else tensor
        # Copies from other memory than pinned one may wait for everything that was enqueued before.
        memory = self.pinned(-(-array.nbytes // 8)).view(torch.uint8)[: array.nbytes]
        staged = memory.view(tensor.dtype).view(array.shape)
        staged.numpy()[...] = array
        return staged.to(self.device, non_blocking=True)

    def fetch(self, tensors: Sequence[Tensor]) -> Pending[list[np.ndarray]]:
        """Return `tensors` as arrays, once the device is so far; on a host platform in the same memory."""
        if self.queue is not None:
            return self.queue.fetch(tensors)
        return Done([tensor.cpu().numpy() for tensor in tensors] if self.apart else [one.numpy() for one in tensors])

    def pinned(self, size: int) -> Tensor:
        """Return `(size,)` int64 of host memory to copy from."""
        # Ordinary tensors: what the first step makes under inference mode would be closed to any other reader.
        with torch.inference_mode(False):
            return torch.empty(size, dtype=torch.int64) if self.queue is None else self.queue.pinned(size)


@dataclass(slots=True)
class Then(Generic[T, U]):
    """A pending value that becomes another one when it is there.

    Args:
        failed: Told when it does not come.
    """

    pending: Pending[T]
    become: Callable[[T], U]
    failed: Callable[[], None]

    def result(self) -> U:
        """Wait, and return what the value becomes."""
        try:
            value = self.pending.result()
        except Exception:
            self.failed()
            raise
        return self.become(value)
