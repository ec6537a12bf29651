"""The device's own queue: what was enqueued is waited for by events, never by the whole device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from core_plugin_accelerator.faults import device_faults
from core_plugin_accelerator.host import pinned


class Fetched:
    """Copies on their way to the host."""

    __slots__ = ("_event", "_hosts")

    def __init__(self, event: Any, hosts: list[Tensor]) -> None:
        self._event, self._hosts = event, hosts

    def result(self) -> list[np.ndarray]:
        """Wait for the event behind the copies, and return them."""
        with device_faults():
            self._event.synchronize()
        return [host.numpy() for host in self._hosts]


class Fence:
    """A mark behind what was enqueued."""

    __slots__ = ("_event",)

    def __init__(self, event: Any) -> None:
        self._event = event

    def result(self) -> None:
        """Wait until the device has reached it."""
        with device_faults():
            self._event.synchronize()


class EventQueue:
    """A `core.api.Queue` over events of a device module (`torch.get_device_module`)."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module, self._device = module, device

    def pinned(self, size: int) -> Tensor:
        """Return `(size,)` int64 of pinned memory."""
        return pinned((size,), torch.int64, self._device)

    def fetch(self, tensors: Sequence[Tensor]) -> Fetched:
        """Enqueue copies into pinned memory."""
        hosts = []
        for tensor in tensors:
            host = pinned(tensor.shape, tensor.dtype, self._device)
            host.copy_(tensor, non_blocking=True)
            hosts.append(host)
        return Fetched(self._mark(), hosts)

    def fence(self) -> Fence:
        """Return a mark behind everything enqueued so far."""
        return Fence(self._mark())

    def _mark(self) -> Any:
        event = self._module.Event()
        event.record(self._module.current_stream(self._device))
        return event
