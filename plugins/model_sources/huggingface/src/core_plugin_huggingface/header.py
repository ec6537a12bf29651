"""Headers of safetensors files, checked without reading any tensor.

Layout: header length (8 bytes, little endian), header (JSON: name -> dtype, shape, data_offsets), tensor data.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from core_plugin_huggingface.faults import damaged

MAX_HEADER = 100 * 2**20
"""The format's own limit, in bytes."""

MAX_DIMS = 8

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64",
    "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""The format's dtypes that torch has as well, with torch's names."""

_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E8M0": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor: its shape, and where its bytes begin and end in the data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor's data."""
        return self.end - self.begin


def read_header(path: Path) -> list[Entry]:
    """Return a file's tensors in the order of their data.

    Raises:
        CheckpointError: CORE-M130, naming the file, and the tensor if it is about one.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER):
            raise damaged(path, f"its header should be {length} bytes long, but the file has {size} bytes")
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"its header is not valid JSON ({error})") from error
    if not isinstance(header, dict):
        raise damaged(path, "its header is not a JSON object")
    room = size - 8 - length
    entries = [_entry(path, name, fields, room) for name, fields in header.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    for first, second in pairwise(entries):
        if second.begin < first.end:
            raise damaged(path, f"the header gives tensors '{first.name}' and '{second.name}' the same place")
    return entries


def _entry(path: Path, name: str, fields: Any, room: int) -> Entry:
    try:
        begin, end = fields["data_offsets"]
        entry = Entry(name, str(fields["dtype"]), tuple(map(_count, fields["shape"])), _count(begin), _count(end))
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(path, f"the header's entry for tensor '{name}' is not understood") from error
    if entry.dtype not in DTYPES:
        raise damaged(path, f"tensor '{name}' has the dtype {entry.dtype!r:.40}, which is not known")
    if len(entry.shape) > MAX_DIMS:
        raise damaged(path, f"tensor '{name}' has {len(entry.shape)} dimensions")
    if begin > end:
        raise damaged(path, f"the header says that tensor '{name}' ends before it begins")
    if end > room:
        raise damaged(path, f"tensor '{name}' ends at byte {end} of the data, but the file has only {room} bytes of it")
    if math.prod(entry.shape) * _BYTES[entry.dtype] != entry.num_bytes:
        raise damaged(path, f"tensor '{name}' of shape {entry.shape} in {entry.dtype} has {entry.num_bytes} bytes")
    return entry


def _count(value: Any) -> int:
    if type(value) is int and 0 <= value < 2**63:
        return value
    raise ValueError(f"{value!r} is not a count")
