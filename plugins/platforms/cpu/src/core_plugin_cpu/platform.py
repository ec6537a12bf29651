"""The CPU platform's runtime."""

from __future__ import annotations

import contextlib
import logging

import psutil
import torch

from core.api.platform import MemorySnapshot, Platform
from core_plugin_cpu.binding import allowed, choose, restrict, show
from core_plugin_cpu.cgroups import memory_limit
from core_plugin_cpu.graphs import ProgramGraphs
from core_plugin_cpu.native import library
from core_plugin_cpu.processor import available_cores, read_processor
from core_plugin_cpu.stream import ThreadStream

_LOG = logging.getLogger(__name__)


class CPUPlatform(Platform):
    """The host processor as a device.

    Attributes:
        graphs: Decode steps as programs of native calls; None without the native library.
    """

    def __init__(self) -> None:
        self.graphs = self._programs = ProgramGraphs() if library.available() else None
        self._threads = available_cores()
        self._where = "auto"
        self._before = self._cpus = allowed()
        self._streams: list[ThreadStream] = []

    def bind(self, where: str) -> None:
        """Choose the processors of what `open` starts, see `binding.choose`."""
        self._where = where

    def open(self, *, threads: int | None, seed: int, index: int = 0) -> torch.device:
        """Set torch's compute threads (default: the physical cores this process may use) and seed its generators.

        Raises:
            ConfigError: The processors that were asked for cannot be had.
        """
        self._before = allowed()
        self._cpus = choose(self._where, self._before, threads)
        self._threads = threads or available_cores(cpus=self._cpus)
        if self._bound:
            restrict(self._cpus)  # what is loaded now lies in the memory of the node that computes with it
        torch.set_num_threads(self._threads)
        with contextlib.suppress(RuntimeError):  # decided for good by whoever used torch in this process before
            torch.set_num_interop_threads(1)
        torch.manual_seed(seed)
        if not library.available():
            _LOG.warning(
                "No native kernels (%s): everything runs in plain torch, several times slower. To change that, %s",
                library.reason(),
                library.REMEDY,
            )
        return torch.device("cpu")

    def memory(self) -> MemorySnapshot:
        """Return the machine's memory, or the control group's where that is tighter."""
        machine, group = psutil.virtual_memory(), memory_limit()
        if group is None:
            return MemorySnapshot(machine.total, machine.available)
        return MemorySnapshot(min(machine.total, group.limit), min(machine.available, group.free))

    def stream(self) -> ThreadStream:
        """Return a new thread that runs work in order."""
        stream = ThreadStream(self._threads, self._cpus if self._bound else None)
        self._streams.append(stream)
        return stream

    def describe(self) -> dict[str, str]:
        """Return processor, compute threads, instruction sets, the one that the native kernels use, and the program."""
        processor = read_processor()
        program = "" if self._programs is None else self._programs.describe()
        return {
            "device": processor.name,
            "threads": f"{self._threads} on processors {show(self._cpus)}" if self._bound else str(self._threads),
            "isa": ", ".join(processor.isa),
            "native kernels": library.isa() if library.available() else f"none: {library.reason()}",
            **({"program": program} if program else {}),
        }

    def close(self) -> None:
        """Close the streams that are still open, and let the calling thread run where it could."""
        while self._streams:
            self._streams.pop().close()
        if self._bound:
            restrict(self._before)
            self._cpus = self._before

    @property
    def _bound(self) -> bool:
        return self._cpus != self._before
