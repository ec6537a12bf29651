"""Level Zero, the interface of Intel's GPU driver. Its loader is asked with ctypes; no context is made."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

LIBRARY = "libze_loader.so.1"

_GPU_ONLY = 1
_GPU = 1
_INTEGRATED = 1
_DRIVER_PROPERTIES, _DEVICE_PROPERTIES, _MEMORY_PROPERTIES = 0x1, 0x3, 0x7
_WHY = {
    0x70020000: "a library that the driver needs is missing",
    0x70010000: "this user may not open the card: it belongs to the group render",
    0x78000001: "the loader finds no driver",
    0x78000002: "the driver is too old for the loader",
    0x78000003: "the driver is too old for the loader",
}


class LevelZeroError(Exception):
    """Level Zero cannot be used; the message says why."""


class _Uuid(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint8 * 16),)


class DriverProperties(ctypes.Structure):
    """`ze_driver_properties_t`."""

    _fields_ = (
        ("stype", ctypes.c_uint32),
        ("pNext", ctypes.c_void_p),
        ("uuid", _Uuid),
        ("driverVersion", ctypes.c_uint32),
    )


class DeviceProperties(ctypes.Structure):
    """`ze_device_properties_t`."""

    _fields_ = (
        ("stype", ctypes.c_uint32),
        ("pNext", ctypes.c_void_p),
        ("type", ctypes.c_uint32),
        ("vendorId", ctypes.c_uint32),
        ("deviceId", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("subdeviceId", ctypes.c_uint32),
        ("coreClockRate", ctypes.c_uint32),
        ("maxMemAllocSize", ctypes.c_uint64),
        ("maxHardwareContexts", ctypes.c_uint32),
        ("maxCommandQueuePriority", ctypes.c_uint32),
        ("numThreadsPerEU", ctypes.c_uint32),
        ("physicalEUSimdWidth", ctypes.c_uint32),
        ("numEUsPerSubslice", ctypes.c_uint32),
        ("numSubslicesPerSlice", ctypes.c_uint32),
        ("numSlices", ctypes.c_uint32),
        ("timerResolution", ctypes.c_uint64),
        ("timestampValidBits", ctypes.c_uint32),
        ("kernelTimestampValidBits", ctypes.c_uint32),
        ("uuid", _Uuid),
        ("name", ctypes.c_char * 256),
    )


class MemoryProperties(ctypes.Structure):
    """`ze_device_memory_properties_t`."""

    _fields_ = (
        ("stype", ctypes.c_uint32),
        ("pNext", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("maxClockRate", ctypes.c_uint32),
        ("maxBusWidth", ctypes.c_uint32),
        ("totalSize", ctypes.c_uint64),
        ("name", ctypes.c_char * 256),
    )


class Device:
    """A GPU.

    Attributes:
        name: What the maker calls it.
        pci_id: PCI device id.
        memory: Bytes of its memory, or of the host's that it may use.
        integrated: It is a part of the processor.
        driver: Version of its driver.
    """

    def __init__(self, properties: DeviceProperties, memory: int, driver: str) -> None:
        self.name = properties.name.decode(errors="replace").strip()
        self.pci_id = int(properties.deviceId)
        self.memory = memory
        self.integrated = bool(properties.flags & _INTEGRATED)
        self.driver = driver


def devices(library: Any = None) -> list[Device]:
    """Return the GPUs that the loader lets this process see: `ZE_AFFINITY_MASK` is its own affair.

    Those that are a part of the processor are left out beside others, as torch leaves them out.

    Args:
        library: The loaded library; None loads it.

    Raises:
        LevelZeroError: The loader is absent, or finds no driver.
    """
    try:
        library = library or ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise LevelZeroError(f"no Level Zero loader: {error}") from error
    _call(library, "zeInit", ctypes.c_uint32(_GPU_ONLY))
    every = [one for driver in _handles(library, "zeDriverGet") for one in _of_driver(library, driver)]
    discrete = [one for one in every if not one.integrated]
    return discrete or every


def _of_driver(library: Any, driver: Any) -> Iterator[Device]:
    about = DriverProperties(stype=_DRIVER_PROPERTIES)
    _call(library, "zeDriverGetProperties", driver, ctypes.byref(about))
    number = int(about.driverVersion)
    version = f"{number >> 24}.{number >> 16 & 0xFF}.{number & 0xFFFF}"
    for device in _handles(library, "zeDeviceGet", driver):
        properties = DeviceProperties(stype=_DEVICE_PROPERTIES)
        _call(library, "zeDeviceGetProperties", device, ctypes.byref(properties))
        if properties.type == _GPU:
            yield Device(properties, _memory(library, device), version)


def _memory(library: Any, device: Any) -> int:
    count = ctypes.c_uint32()
    _call(library, "zeDeviceGetMemoryProperties", device, ctypes.byref(count), None)
    found = (MemoryProperties * count.value)()
    for one in found:
        one.stype = _MEMORY_PROPERTIES
    _call(library, "zeDeviceGetMemoryProperties", device, ctypes.byref(count), found)
    return sum(int(one.totalSize) for one in found)


def _handles(library: Any, name: str, *arguments: Any) -> list[Any]:
    count = ctypes.c_uint32()
    _call(library, name, *arguments, ctypes.byref(count), None)
    found = (ctypes.c_void_p * count.value)()
    _call(library, name, *arguments, ctypes.byref(count), found)
    return [ctypes.c_void_p(one) for one in found]


def _call(library: Any, name: str, *arguments: Any) -> None:
    status = getattr(library, name)(*arguments) & 0xFFFFFFFF
    if status:
        raise LevelZeroError(f"Level Zero: {_WHY.get(status, 'it failed')} ({name}: 0x{status:08x})")
