"""Entries of the native library: argument structs and calls. Torch-free.

Every field of every struct is one 8-byte word, so a call packs its values in field order and hands over the bytes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cached_property
from typing import Protocol

from core_plugin_cpu.native.library import library

FLOAT32, BFLOAT16, FLOAT16, INT8, UINT8, FLOAT8_E4M3, FLOAT8_E5M2 = range(7)
"""Values of `dtype` fields."""

_CODES = {"p": "Q", "i": "q", "f": "d"}
WORD = 8


class CallRecorder(Protocol):
    """Receives calls while they are made."""

    def add(self, entry: Entry, packed: bytes) -> bool:
        """Take a call; return whether it is to be made now."""
        ...


recorder: ContextVar[CallRecorder | None] = ContextVar("recorder", default=None)
"""Who records the calls of this thread, if anybody."""


class Entry:
    """A native function and the layout of its arguments.

    Args:
        name: The function without its prefix `core_cpu_`.
        pointers, sizes, numbers: Names of the fields, in the struct's order: pointers, then int64, then doubles.
        slots: Field -> slot, for fields that a recorded program changes from step to step: `tokens`, `rows`, or
            the name of an input of the step (see `core_plugin_cpu.native.program`).
        result: Whether the function returns a number.

    Attributes:
        fields: Field -> place in the struct, in words.
        pointers: The fields that are pointers.
    """

    def __init__(
        self,
        name: str,
        *,
        pointers: str,
        sizes: str,
        numbers: str = "",
        slots: Mapping[str, str] | None = None,
        result: bool = False,
    ) -> None:
        self.name = name
        kinds = [(field, "p") for field in pointers.split()]
        kinds += [(field, "i") for field in sizes.split()]
        kinds += [(field, "f") for field in numbers.split()]
        self.fields: Mapping[str, int] = {field: index for index, (field, _) in enumerate(kinds)}
        self.pointers = frozenset(pointers.split())
        self.slots = dict(slots or {})
        self._result = ctypes.c_int64 if result else None
        self._struct = struct.Struct("=" + "".join(_CODES[kind] for _, kind in kinds))

    def __call__(self, *values: float) -> int | None:
        """Call the function with one value per field, and return its result, if it has one.

        Nothing is checked: callers pass valid pointers and sizes.
        """
        packed = self._struct.pack(*values)
        listener = recorder.get()
        if listener is not None and not listener.add(self, packed):
            return None
        result: int | None = self._function(packed)
        return result

    def unpack(self, packed: bytes) -> dict[str, float]:
        """Return the fields of an argument struct by name."""
        return dict(zip(self.fields, self._struct.unpack(packed)))

    def pack(self, *values: float) -> bytes:
        """Return the argument struct for one value per field."""
        return self._struct.pack(*values)

    @cached_property
    def address(self) -> int:
        """Address of the function."""
        return ctypes.cast(getattr(library(), f"core_cpu_{self.name}"), ctypes.c_void_p).value or 0

    @cached_property
    def _function(self) -> ctypes._NamedFuncPointer:
        function: ctypes._NamedFuncPointer = getattr(library(), f"core_cpu_{self.name}")
        function.argtypes, function.restype = [ctypes.c_char_p], self._result
        return function
