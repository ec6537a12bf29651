"""NVML, the library of the NVIDIA driver that describes cards. Loaded with ctypes; no CUDA context is made."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

NOT_SUPPORTED = 3
DRIVER_NOT_LOADED = 9
_CHARACTERS = 96


class NvmlError(Exception):
    """NVML cannot be used; the message says why."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@contextmanager
def opened(library: Any = None) -> Iterator[Nvml]:
    """Open NVML for a few questions.

    Args:
        library: The loaded library; None loads it.

    Raises:
        NvmlError: The library is absent, or there is no driver behind it.
    """
    try:
        library = library or ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise NvmlError(f"no NVIDIA driver: {error}") from error
    nvml = Nvml(library)
    nvml.call("nvmlInit_v2")
    try:
        yield nvml
    finally:
        library.nvmlShutdown()


class Nvml:
    """Questions to NVML. Devices are those of the machine in the order of their places on the bus.

    Each raises `NvmlError` if the library does not answer.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def driver(self) -> str:
        """Return the driver's version, `570.86.15`."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda(self) -> tuple[int, int]:
        """Return the newest CUDA that the driver runs."""
        version = ctypes.c_int()
        self.call("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version))
        return version.value // 1000, version.value % 1000 // 10

    def devices(self) -> list[Any]:
        """Return a handle for each card."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(place)) for place in range(count.value)]

    def by_uuid(self, uuid: str) -> Any:
        """Return the handle of a card, or of a part of one (MIG)."""
        return self._handle("nvmlDeviceGetHandleByUUID", uuid.encode())

    def whole(self, part: Any) -> Any:
        """Return the card of a part."""
        return self._handle("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", part)

    def name(self, device: Any) -> str:
        """Return what the maker calls it."""
        return self._text("nvmlDeviceGetName", device)

    def uuid(self, device: Any) -> str:
        """Return `GPU-` or `MIG-` and its number."""
        return self._text("nvmlDeviceGetUUID", device)

    def capability(self, device: Any) -> tuple[int, int]:
        """Return the compute capability."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvmlDeviceGetCudaComputeCapability", device, ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def memory(self, device: Any) -> int:
        """Return all bytes of its memory; 0 where it shares the host's and NVML tells none."""
        memory = _Memory()
        try:
            self.call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        except NvmlError:
            return 0
        return int(memory.total)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises `NvmlError` for any status but success."""
        function = getattr(self._library, name, None)
        if function is None:
            raise NvmlError(f"the NVIDIA driver is too old: its {LIBRARY} has no {name}")
        status = function(*arguments)
        if status != 0:
            raise NvmlError(self._why(name, status))

    def _why(self, name: str, status: int) -> str:
        if status == DRIVER_NOT_LOADED:
            return "the NVIDIA driver is not loaded: its library is here, its kernel module is not"
        describe = self._library.nvmlErrorString
        describe.restype = ctypes.c_char_p
        return f"NVML: {name} failed: {(describe(status) or b'').decode(errors='replace')} ({status})"

    def _handle(self, name: str, *arguments: Any) -> Any:
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def _text(self, name: str, *arguments: Any) -> str:
        buffer = ctypes.create_string_buffer(_CHARACTERS)
        self.call(name, *arguments, buffer, ctypes.c_uint(_CHARACTERS))
        return buffer.value.decode(errors="replace")
