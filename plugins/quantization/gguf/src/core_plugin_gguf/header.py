"""The header of a GGUF file: metadata and tensor directory, parsed from a memory map.

Values are located when the file is opened and decoded when they are asked for: a vocabulary of 50,000 strings costs
one walk over their lengths (about 10 ms), where a parser that makes an object per string needs seconds.
Every length and count is held against the file's size before it is believed.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from gguf.constants import GGUF_DEFAULT_ALIGNMENT, GGUFValueType

from core_plugin_gguf.faults import bad_tensor_type, damaged
from core_plugin_gguf.kinds import SIZES, Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_N = TypeVar("_N", int, float)

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_DIMS = 4
MAX_NAME = 65535
MAX_NESTING = 4
MOST_SIZE = 2**27
"""Greatest size that metadata may give to anything in the model."""
SMALLEST_PAIR = 13
"""Bytes of a key-value pair with an empty key and a one-byte value."""
SMALLEST_TENSOR = 24
"""Bytes of a tensor's entry with an empty name and no dimension."""

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_FORMATS = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class Value:
    """Where a metadata value lies: for arrays `kind` is that of the items and `count` their number."""

    kind: GGUFValueType
    offset: int
    count: int | None = None


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One entry of the tensor directory.

    Attributes:
        shape: In torch order, slowest dimension first.
        offset, num_bytes: The tensor's data in the file.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class Header:
    """An open GGUF file.

    Attributes:
        path: The file.
        data: Its memory map, read only.
        tensors: Its tensors, in file order.

    Raises:
        CheckpointError: `CORE-M141` if the header or a tensor's place in the file makes no sense, `CORE-M142` if a
            tensor's type is not known at all.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = _map(path)
        tensor_count, pair_count = _start(path, self.data)
        walk = _Walk(path, self.data, 24)
        walk.expect(pair_count, SMALLEST_PAIR, "metadata pairs")
        self._values = _pairs(walk, pair_count)
        walk.expect(tensor_count, SMALLEST_TENSOR, "tensors")
        entries = [_entry(walk) for _ in range(tensor_count)]
        self.tensors = self._place(entries, walk.at)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of all metadata pairs, in file order."""
        return iter(self._values)

    def text(self, key: str, default: str = "") -> str:
        """Return a string value; undecodable bytes are replaced."""
        value = self._values.get(key)
        if value is None:
            return default
        if value.kind != GGUFValueType.STRING or value.count is not None:
            raise damaged(self.path, f"{key} is not a string")
        return self._strings(value.offset, 1)[0]

    def integer(self, key: str) -> int | None:
        """Return a whole number, or None if the file lacks it. An array of equal numbers counts as one number."""
        value = self._number(key)
        if value is not None and not isinstance(value, int):
            raise damaged(self.path, f"{key} is not a whole number")
        return value

    def number(self, key: str) -> float | None:
        """Return a number, or None if the file lacks it."""
        return self._number(key)

    def positive_integer(self, key: str, default: int | None = None, *, most: int = MOST_SIZE) -> int:
        """Return a whole number from 1 to `most`; without a default the file must have it."""
        return self._within(key, self.integer(key), default, 1, most)

    def first_positive_integer(self, key: str, default: int | None = None) -> int:
        """Return what `positive_integer` does, of an array its first entry: that of the first layer."""
        if not self.is_array(key):
            return self.positive_integer(key, default)
        value = next(iter(self.numbers(key) or ()), None)
        if not isinstance(value, int):
            raise damaged(self.path, f"{key} has no whole number for the first layer")
        return self._within(key, value, None, 1, MOST_SIZE)

    def positive_number(
        self, key: str, default: float | None = None, *, least: float = 0.0, most: float = math.inf
    ) -> float:
        """Return a finite number above zero, from `least` to `most`; without a default the file must have it."""
        return self._within(key, self.number(key), default, least, most)

    def flag(self, key: str) -> bool | None:
        """Return a truth value, or None if the file lacks it."""
        value = self._number(key)
        return None if value is None else bool(value)

    def is_array(self, key: str) -> bool:
        """Say whether the file has a key, and an array for it."""
        value = self._values.get(key)
        return value is not None and value.count is not None

    def numbers(self, key: str) -> list[int | float] | None:
        """Return an array of numbers, or None if the file lacks it."""
        value = self._values.get(key)
        if value is None:
            return None
        if value.count is None or value.kind not in _FORMATS:
            raise damaged(self.path, f"{key} is not an array of numbers")
        return list(struct.unpack_from(f"<{value.count}{_FORMATS[value.kind]}", self.data, value.offset))

    def strings(self, key: str) -> list[str] | None:
        """Return an array of strings, or None if the file lacks it."""
        value = self._values.get(key)
        if value is None:
            return None
        if value.count is None or value.kind != GGUFValueType.STRING:
            raise damaged(self.path, f"{key} is not an array of strings")
        return self._strings(value.offset, value.count)

    def _number(self, key: str) -> int | float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if value.kind not in _FORMATS or value.count == 0:
            raise damaged(self.path, f"{key} is not a number")
        if value.count is None:
            number = struct.unpack_from(f"<{_FORMATS[value.kind]}", self.data, value.offset)[0]
            # The shortest decimal of a float32: 1e-05, not 9.999999747378752e-06.
            return float(str(np.float32(number))) if value.kind == GGUFValueType.FLOAT32 else number
        items = set(self.numbers(key) or ())
        if len(items) != 1:
            raise damaged(self.path, f"{key} differs from layer to layer")
        return items.pop()

    def _within(self, key: str, value: _N | None, default: _N | None, least: float, most: float) -> _N:
        if value is None:
            value = default
        if value is None:
            raise damaged(self.path, f"the key {key} is missing")
        if not 0 < value < math.inf:
            raise damaged(self.path, f"{key} is {value}, not a positive number")
        if not least <= value <= most:
            raise damaged(self.path, f"{key} is {value}, not a number from {least:g} to {most:g}")
        return value

    def _strings(self, at: int, count: int) -> list[str]:
        """Return `count` strings from offset `at`, which `_Walk.skip_strings` has checked."""
        data, unpack, result = self.data, _U64.unpack_from, []
        for _ in range(count):
            end = at + 8 + unpack(data, at)[0]
            result.append(data[at + 8 : end].decode("utf-8", "replace"))
            at = end
        return result

    def _place(self, entries: list[tuple[str, int, tuple[int, ...], int]], end: int) -> list[TensorInfo]:
        """Give every entry its size and its place in the file, which holds the data from `end` on, aligned."""
        alignment = self.integer("general.alignment") or GGUF_DEFAULT_ALIGNMENT
        if alignment & (alignment - 1) or not 8 <= alignment <= 2**20:
            raise damaged(self.path, f"general.alignment is {alignment}, not a power of two from 8 to 1048576")
        base = -(-end // alignment) * alignment
        placed: dict[str, TensorInfo] = {}
        for name, kind, shape, offset in entries:
            if name in placed:
                raise damaged(self.path, f"tensor {name} appears twice")
            if offset % alignment:
                raise damaged(self.path, f"tensor {name} is not aligned to {alignment} bytes")
            placed[name] = self._sized(name, kind, shape, base + offset)
        for first, second in pairwise(sorted(placed.values(), key=lambda one: one.offset)):
            if second.offset < first.offset + first.num_bytes:
                raise damaged(self.path, f"tensors {first.name} and {second.name} have the same place in it")
        return list(placed.values())

    def _sized(self, name: str, kind: int, shape: tuple[int, ...], offset: int) -> TensorInfo:
        try:
            known = kind_of(kind)
        except ValueError:
            raise bad_tensor_type(self.path, name, f"number {kind}") from None
        block, block_bytes = SIZES[known]
        elements = 1
        for size in shape:
            elements *= size
        if not elements or shape[-1] % block:
            raise damaged(self.path, f"tensor {name} of shape {shape} cannot consist of {known.name} blocks of {block}")
        num_bytes = elements // block * block_bytes
        if offset + num_bytes > len(self.data):
            raise damaged(
                self.path,
                f"the data of tensor {name} ends at byte {offset + num_bytes}, the file at byte {len(self.data)}",
            )
        return TensorInfo(name, known, shape, offset, num_bytes)


class _Walk:
    """A position in the file that cannot leave it."""

    def __init__(self, path: Path, data: mmap.mmap, at: int) -> None:
        self.path = path
        self.data = data
        self.at = at
        self.what = "the header"

    def skip(self, size: int) -> int:
        """Step over `size` bytes and return where they began."""
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise damaged(self.path, f"it ends inside {self.what}")
        return start

    def u32(self) -> int:
        return int(_U32.unpack_from(self.data, self.skip(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack_from(self.data, self.skip(8))[0])

    def expect(self, count: int, size: int, what: str) -> None:
        """Refuse a count of things of at least `size` bytes each that the rest of the file cannot hold."""
        if count * size > len(self.data) - self.at:
            raise damaged(self.path, f"it claims {count} {what}, more than its {len(self.data)} bytes can hold")

    def name(self, what: str) -> str:
        length = self.u64()
        if not 0 < length <= MAX_NAME:
            raise damaged(self.path, f"{what} after byte {self.at} has a name of {length} bytes")
        start = self.skip(length)
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError:
            raise damaged(self.path, f"{what} at byte {start} has a name that is not UTF-8") from None

    def skip_strings(self, count: int) -> None:
        data, at, end, unpack = self.data, self.at, len(self.data) - 8, _U64.unpack_from
        for _ in range(count):
            if at > end:
                break
            at += 8 + unpack(data, at)[0]
        self.at = at
        self.skip(0)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise damaged(path, "it is empty") from None
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def _start(path: Path, data: mmap.mmap) -> tuple[int, int]:
    """Check magic and version; return the numbers of tensors and of metadata pairs."""
    if data[:4] != MAGIC:
        raise damaged(path, f"it begins with {data[:4]!r}, not {MAGIC!r}")
    if len(data) < 24:
        raise damaged(path, "it ends inside the header")
    version, tensors, pairs = struct.unpack_from("<IQQ", data, 4)
    if version not in VERSIONS:
        what = "it is big-endian" if version & 0xFFFF == 0 and version else f"it has version {version}"
        raise damaged(path, f"{what}; little-endian files of version 2 and 3 are supported")
    return tensors, pairs


def _pairs(walk: _Walk, count: int) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for index in range(count):
        walk.what = f"metadata pair {index + 1} of {count}"
        key = walk.name("a metadata pair")
        if key in values:
            raise damaged(walk.path, f"key {key} appears twice")
        walk.what = f"the value of {key}"
        values[key] = _value(walk, key)
    return values


def _value(walk: _Walk, key: str) -> Value:
    kind = _kind(walk, key)
    if kind != GGUFValueType.ARRAY:
        return Value(kind, _skip_items(walk, kind, 1))
    kind = _kind(walk, key)
    count = walk.u64()
    return Value(kind, _skip_items(walk, kind, count, key), count)


def _skip_items(walk: _Walk, kind: GGUFValueType, count: int, key: str = "", depth: int = 1) -> int:
    """Step over `count` values and return where the first begins."""
    start = walk.at
    if kind in _FORMATS:
        return walk.skip(count * struct.calcsize("<" + _FORMATS[kind]))
    if kind == GGUFValueType.STRING:
        walk.expect(count, 8, f"strings in {walk.what}")
        walk.skip_strings(count)
        return start
    if depth > MAX_NESTING:
        raise damaged(walk.path, f"{key} nests more than {MAX_NESTING} arrays")
    walk.expect(count, 12, f"arrays in {walk.what}")
    for _ in range(count):
        inner = _kind(walk, key)
        _skip_items(walk, inner, walk.u64(), key, depth + 1)
    return start


def _kind(walk: _Walk, key: str) -> GGUFValueType:
    number = walk.u32()
    try:
        return GGUFValueType(number)
    except ValueError:
        raise damaged(walk.path, f"{key} has the unknown value type {number}") from None


def _entry(walk: _Walk) -> tuple[str, int, tuple[int, ...], int]:
    """Read a tensor's entry: name, type number, shape in torch order, offset of its data."""
    walk.what = "the tensor directory"
    name = walk.name("a tensor")
    walk.what = f"the entry of tensor {name}"
    dims = walk.u32()
    if not 1 <= dims <= MAX_DIMS:
        raise damaged(walk.path, f"tensor {name} has {dims} dimensions")
    shape = tuple(walk.u64() for _ in range(dims))[::-1]
    return name, walk.u32(), shape, walk.u64()
