"""How a file of packed weights is laid out: safetensors, with tensors at multiples of 64 bytes and an end mark.

What lies between two tensors is a tensor too (`pad.N`), since the format knows no holes. The last one, `end`, is
written last: a mark, the digest of the header, the checksum of the data before it. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

FORMAT = "core packed weights 1"
ALIGNED = 64
END = "end"
_MARK = b"core weights end"
_MOST_HEADER = 2**28

DTYPES = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "int16": ("I16", 2),
    "int32": ("I32", 4),
    "int64": ("I64", 8),
    "uint16": ("U16", 2),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "float32": ("F32", 4),
    "float64": ("F64", 8),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "float8_e8m0fnu": ("F8_E8M0", 1),
}
"""torch's name of a dtype -> that of safetensors, and bytes of an element."""

_TORCH = {name: torch for torch, (name, _) in DTYPES.items()}


class UnusableError(Exception):
    """Why a file cannot be used."""


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor in the file; `begin` counts from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole file.

    Attributes:
        header: Its first bytes, up to the data.
        places: Its tensors, by place, without pads and end.
        about: What it says of itself: `format`, `key`, `model`.
        size: Of the file.
    """

    header: bytes
    places: tuple[Place, ...]
    about: Mapping[str, str]
    size: int

    def end(self, checksum: int) -> bytes:
        """Return the last bytes of the file, for this checksum (CRC-32) of its data."""
        return _MARK + hashlib.sha256(self.header).digest() + checksum.to_bytes(16, "little")


def planned(tensors: Iterable[tuple[str, str, tuple[int, ...]]], about: Mapping[str, str]) -> Layout:
    """Return the layout of a file for tensors: name, torch's name of the dtype, shape.

    Raises:
        UnusableError: A dtype has no name there.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": FORMAT, **about}}
    found: list[tuple[str, str, tuple[int, ...], int, int]] = []
    at = 0
    for number, (name, dtype, shape) in enumerate(tensors):
        if dtype not in DTYPES:
            raise UnusableError(f"'{name}' is of dtype {dtype}, which files of weights do not know")
        size = prod(shape) * DTYPES[dtype][1]
        entries[f"t.{name}"] = {"dtype": DTYPES[dtype][0], "shape": list(shape), "data_offsets": [at, at + size]}
        found.append((name, dtype, shape, at, size))
        at += size
        if pad := -at % ALIGNED:
            entries[f"pad.{number}"] = {"dtype": "U8", "shape": [pad], "data_offsets": [at, at + pad]}
            at += pad
    entries[END] = {"dtype": "U8", "shape": [ALIGNED], "data_offsets": [at, at + ALIGNED]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNED)
    header = len(text).to_bytes(8, "little") + text
    places = tuple(Place(name, dtype, shape, len(header) + begin, size) for name, dtype, shape, begin, size in found)
    return Layout(header, places, entries["__metadata__"], len(header) + at + ALIGNED)


def read(file: int, size: int) -> Layout:
    """Read the layout of an open file of `size` bytes.

    Raises:
        UnusableError: It is no such file, or no whole one.
        OSError: It cannot be read.
    """
    length = int.from_bytes(os.pread(file, 8, 0), "little")
    if not 0 < length <= min(_MOST_HEADER, size - 8):
        raise UnusableError("it has no header of packed weights")
    header = os.pread(file, 8 + length, 0)
    try:
        layout = _parsed(header, json.loads(header[8:]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnusableError(f"its header cannot be read ({type(error).__name__})") from error
    if layout.about.get("format") != FORMAT:
        raise UnusableError("it is no file of packed weights of this version")
    if layout.size != size:
        raise UnusableError(f"it has {size} bytes instead of {layout.size}")
    if os.pread(file, ALIGNED, size - ALIGNED)[:-16] != layout.end(0)[:-16]:
        raise UnusableError("its end does not belong to its header")
    return layout


def _parsed(header: bytes, entries: dict[str, Any]) -> Layout:
    about = dict(entries.pop("__metadata__", {}))
    places, ends = [], [0]
    for name, entry in entries.items():
        begin, end = entry["data_offsets"]
        ends.append(int(end))
        if not name.startswith("t."):
            continue
        dtype, shape = _TORCH[entry["dtype"]], tuple(int(size) for size in entry["shape"])
        if begin % ALIGNED or min(shape, default=1) < 0 or end - begin != prod(shape) * DTYPES[dtype][1]:
            raise ValueError(name)
        places.append(Place(name[2:], dtype, shape, len(header) + begin, end - begin))
    return Layout(header, tuple(places), about, len(header) + max(ends))
