"""The CPU platform's runtime."""

from __future__ import annotations

import psutil
import torch

from core.api.platform import MemorySnapshot
from core_plugin_cpu.cgroups import memory_limit
from core_plugin_cpu.processor import available_cores, read_processor
from core_plugin_cpu.stream import ThreadStream


class CPUPlatform:
    """The host processor as a device."""

    def __init__(self) -> None:
        self._threads = available_cores()
        self._streams: list[ThreadStream] = []

    def open(self, *, threads: int | None, seed: int) -> torch.device:
        """Set torch's compute threads (default: the physical cores this process may use) and seed its generators."""
        self._threads = threads or available_cores()
        torch.set_num_threads(self._threads)
        torch.manual_seed(seed)
        return torch.device("cpu")

    def memory(self) -> MemorySnapshot:
        """Return the machine's memory, or the control group's where that is tighter."""
        machine, group = psutil.virtual_memory(), memory_limit()
        if group is None:
            return MemorySnapshot(machine.total, machine.available)
        return MemorySnapshot(min(machine.total, group.limit), min(machine.available, group.free))

    def stream(self) -> ThreadStream:
        """Return a new thread that runs work in order."""
        stream = ThreadStream(self._threads)
        self._streams.append(stream)
        return stream

    def describe(self) -> dict[str, str]:
        """Return processor, compute threads and instruction sets."""
        processor = read_processor()
        return {"device": processor.name, "threads": str(self._threads), "isa": ", ".join(processor.isa)}

    def close(self) -> None:
        """Close the streams that are still open."""
        while self._streams:
            self._streams.pop().close()
