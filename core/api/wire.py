"""Messages between processes as bytes: step plans and results, for a worker that lives elsewhere.

msgpack with arrays as `(dtype, shape, raw bytes)`: the cost is that of copying the bytes, whatever the arrays hold.
Decoding is typed and builds nothing but the dataclasses and structs that the type names; it never runs code from the
data.
"""

from __future__ import annotations

import math
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from core.api.errors import EngineError

T = TypeVar("T")

_DTYPES = {
    np.dtype(kind).str: np.dtype(kind)
    for kind in (
        "bool",
        "int8",
        "uint8",
        "int16",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
}
_MAX_DIMS = 8


def encode_message(value: Any) -> bytes:
    """Return `value` (a dataclass, struct or plain data, numpy arrays included) as msgpack.

    Raises:
        EngineError: It holds something that cannot be sent (code `CORE-E131`).
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EngineError("CORE-E131", f"{type(value).__name__} cannot be sent to another process: {error}.") from error


class MessageDecoder(Generic[T]):
    """Decodes messages of one type, for example `MessageDecoder(StepPlan)`."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind, dec_hook=unpack_array)
        self._name = getattr(kind, "__name__", str(kind))

    def decode(self, data: bytes | memoryview) -> T:
        """Return the message in `data`; its arrays are writable copies.

        Raises:
            EngineError: `data` is not such a message (code `CORE-E131`).
        """
        try:
            return self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise EngineError(
                "CORE-E131", f"A message between processes is not a valid {self._name}: {error}."
            ) from error


def _pack(value: Any) -> tuple[str, tuple[int, ...], memoryview]:
    """Describe an array; msgspec calls this for what it does not know itself."""
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} is not plain data")
    if value.dtype.str not in _DTYPES or value.ndim > _MAX_DIMS:
        raise TypeError(f"an array of {value.dtype} with {value.ndim} dimensions is not allowed")
    # The uint8 view gives an empty or 0-d array the one form of buffer that every array has here.
    return value.dtype.str, value.shape, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data


def unpack_array(kind: type, packed: Any) -> np.ndarray:
    """Rebuild an array, holding every claim of the message against the bytes that came."""
    if kind is not np.ndarray or not isinstance(packed, list) or len(packed) != 3:
        raise ValueError("expected an array as (dtype, shape, bytes)")
    name, shape, data = packed
    dtype = _DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise ValueError(f"array dtype {name!r} is not allowed")
    if not isinstance(shape, list) or len(shape) > _MAX_DIMS or not all(type(dim) is int and dim >= 0 for dim in shape):
        raise ValueError("array shape is not a short list of sizes")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"array of shape {shape} and dtype {name} has the wrong number of bytes")
    return np.frombuffer(data, dtype).reshape(shape).copy()


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_pack)


def restored(part: Any, kind: type | None, name: str) -> Any:
    """Return a part as its declared type: itself in one process, rebuilt from plain data behind a process border.

    Raises:
        EngineError: CORE-E184, the data is not of that type, or nobody declares such a part.
    """
    if kind is not None and isinstance(part, kind):
        return part
    try:
        if kind is None:
            raise ValueError("nobody declares such a part")
        return msgspec.convert(part, kind, dec_hook=unpack_array)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise no_part(name, kind, str(error)) from error


def no_part(name: str, kind: type | None, why: str) -> EngineError:
    """Return the error for a part that is not what it should be."""
    text = f"a part '{name}' is no {getattr(kind, '__name__', 'part')}: {why}."
    return EngineError("CORE-E184", text, hint="Both halves must come from one version of its plugin.")
