"""Entries of native libraries: argument structs and calls. Torch-free, and public.

A function that a program can call takes one pointer, to a struct whose fields are 8-byte words: pointers, then int64
numbers, then doubles. A call packs its values in that order and hands over the bytes.

Other distributions declare entries of libraries of their own here, and what calls them (a kernel, a quantization
method's product) is recorded like this distribution's:

    SCALE = Entry(
        "acme_scale", pointers="x out", sizes="rows size", numbers="by", slots={"rows": "tokens"}, library=load
    )

    def scale(x, by):
        out = torch.empty(x.shape, dtype=x.dtype)
        SCALE(x.data_ptr(), out.data_ptr(), *x.shape, by)
        return out

- The field that holds the number of tokens is a slot, as `rows` is here: a step changes it. So is a pointer to the
  step's `token_ids` or `positions`. A field that depends on the step and is no slot has the program refused, by name.
- Results are allocated with torch; the call writes nowhere else. The same tensors go to the same call in every step.
- The function runs on one thread, the caller's, and returns when it is done. It must not throw.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
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
"""Recorder of this thread's calls, if there is one."""

PREFIX = "core_cpu_"
"""Of the functions of this distribution's library."""


class Entry:
    """A native function and the layout of its arguments.

    Args:
        name: The function; without its prefix `core_cpu_` if it is this distribution's.
        pointers, sizes, numbers: Names of the fields, in the struct's order: pointers, then int64, then doubles.
        slots: Field -> slot, for fields that a recorded program changes from step to step: `tokens`, `rows`, or
            the name of an input of the step (see `core_plugin_cpu.native.program`).
        result: Whether the function returns a number.
        library: Returns the library that has the function, loaded; it is asked when the entry is first called or
            recorded. None: this distribution's.

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
        library: Callable[[], ctypes.CDLL] | None = None,
    ) -> None:
        self.name = name
        self._library = library
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
        return ctypes.cast(self._function, ctypes.c_void_p).value or 0

    @cached_property
    def _function(self) -> ctypes._NamedFuncPointer:
        found = getattr(library(), PREFIX + self.name) if self._library is None else self._library()[self.name]
        function: ctypes._NamedFuncPointer = found
        function.argtypes, function.restype = [ctypes.c_char_p], self._result
        return function
