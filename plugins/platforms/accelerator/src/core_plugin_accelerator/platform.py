"""The runtime that platforms of accelerators derive from."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from core.api.errors import EngineError
from core.api.platform import MemorySnapshot, Platform
from core_plugin_accelerator.collectives import LIBRARIES, Alone, Group, has
from core_plugin_accelerator.graphs import CapturedGraphs, graph_class
from core_plugin_accelerator.memory import DeviceMemory
from core_plugin_accelerator.options import AcceleratorOptions
from core_plugin_accelerator.queue import EventQueue
from core_plugin_accelerator.stream import DeviceStream
from core_plugin_accelerator.uploads import PinnedUploads

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_LOG = logging.getLogger(__name__)


class AcceleratorPlatform(Platform):
    """A device with memory, streams, events and graphs of its own, over `torch.get_device_module`.

    Args:
        options: Those of `AcceleratorOptions`.

    Attributes:
        device_type: torch's type of the device.
        backend: Of torch.distributed, for several ranks.
    """

    apart = True
    device_type: ClassVar[str] = ""
    backend: ClassVar[str] = ""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = AcceleratorOptions.model_validate(dict(options or {}))
        self._streams: list[DeviceStream] = []
        self._threads: int | None = None
        self._module: Any = None
        self._device = torch.device("cpu")
        self._memory: DeviceMemory
        self.collectives: Alone | Group = Alone()

    def open(self, *, threads: int | None, seed: int, index: int) -> torch.device:
        """Make the device current in this process, and seed torch's generators.

        Raises:
            EngineError: CORE-E139, torch finds no such device.
        """
        self._module, self._device, self._threads = self._device_module(), self._torch_device(index), threads
        count = self._module.device_count()
        if index >= count:
            raise EngineError(
                "CORE-E139",
                f"torch {torch.__version__} finds {count} {self.device_type} devices; number {index} was asked for.",
                hint="`core plugins doctor` and the driver's own tool say what is there.",
            )
        if threads is not None:
            torch.set_num_threads(threads)
        self._module.set_device(index)
        torch.manual_seed(seed)
        self._memory = DeviceMemory(self._module, self._device, self._reserve(self._module.get_device_name(index)))
        if graph_class(self._module) is not None:
            sizes = (self._options.graph_sizes, self._options.graph_tokens)
            self.graphs = CapturedGraphs(self._module, self._device, *sizes)
        if self.backend and not has(self.backend):
            library = LIBRARIES[self.backend]
            _LOG.warning("torch %s has no %s: models cannot be divided among devices.", torch.__version__, library)
        return self._device

    def memory(self) -> MemorySnapshot:
        """Return the device's memory, that of other processes included."""
        return self._memory.snapshot()

    def mark_memory(self) -> None:
        """Count the peak anew."""
        self._memory.mark()

    def release_memory(self) -> None:
        """Give back to the driver what torch's allocator keeps."""
        self._memory.release()

    def stream(self) -> DeviceStream:
        """Return a new thread that enqueues in order."""
        self._streams.append(DeviceStream(self._module, self._device, self._threads))
        return self._streams[-1]

    def queue(self) -> EventQueue:
        """Return the queue behind torch's operations."""
        return EventQueue(self._module, self._device)

    def uploads(self) -> PinnedUploads:
        """Return what brings weights to the device."""
        return PinnedUploads(self._module, self._device)

    def describe(self) -> dict[str, str]:
        """Return the device's name, and its memory."""
        memory, index = self.memory(), self._device.index or 0
        name = f"{self._module.get_device_name(index)} ({self.device_type}:{index})"
        return {"device": name, "memory": f"{memory.total / 2**30:.2f} GiB, {memory.free / 2**30:.2f} free"}

    def close(self) -> None:
        """Close the streams, and leave the group. May be called again."""
        while self._streams:
            self._streams.pop().close()
        self.collectives.close()
        self.collectives = Alone()

    def _join(self, store: Store, rank: int, size: int) -> Group:
        """Take part in a group of ranks. Raises `EngineError` CORE-E138 where torch lacks the library for it."""
        self.collectives = group = Group(self.backend, self._device, store, rank, size)
        return group

    def _device_module(self) -> Any:
        """Return torch's module of the device."""
        return torch.get_device_module(self.device_type)

    def _torch_device(self, index: int) -> torch.device:
        return torch.device(self.device_type, index)

    def _reserve(self, name: str) -> int:
        """Return the bytes that are left to the driver of a card of this name."""
        return 0
