"""Vectors as bytes: one table of number formats, and both directions of each. No torch."""

from __future__ import annotations

import base64
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

EmbedDType = Literal["float32", "float16", "bfloat16", "fp8_e4m3", "fp8_e5m2"]
Endianness = Literal["native", "little", "big"]
EncodingFormat = Literal["float", "base64", "bytes", "bytes_only"]


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format of binary floating-point numbers.

    Attributes:
        stored: numpy type code of what is stored; its size is the format's.
        exponent, mantissa: Bits; 0, 0 for what numpy knows by itself.
        finite_codes: Codes of numbers that are not negative and finite, from 0 on.
    """

    stored: str
    exponent: int = 0
    mantissa: int = 0
    finite_codes: int = 0

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return np.dtype(self.stored).itemsize


EMBED_DTYPES: Mapping[EmbedDType, NumberFormat] = types.MappingProxyType(
    {
        "float32": NumberFormat("f4"),
        "float16": NumberFormat("f2"),
        "bfloat16": NumberFormat("u2", 8, 7, 0x7F80),
        "fp8_e4m3": NumberFormat("u1", 4, 3, 0x7F),  # without infinity: the code behind the last number is no number
        "fp8_e5m2": NumberFormat("u1", 5, 2, 0x7C),
    }
)
"""Every number format; a new one is one entry here, and its name above."""

if set(EMBED_DTYPES) != set(get_args(EmbedDType)):
    raise RuntimeError("EmbedDType and EMBED_DTYPES name different formats")


def encode(vector: np.ndarray, dtype: EmbedDType, endianness: Endianness = "native") -> bytes:
    """Return an array's numbers in order. They round to nearest even; what is too large becomes the largest finite.

    Args:
        vector: float32, any shape.
    """
    form = EMBED_DTYPES[dtype]
    if form.mantissa:
        stored = _to_codes(np.ascontiguousarray(vector, dtype=np.float32), form)
    else:
        limit = np.finfo(form.stored).max
        stored = np.clip(vector, -limit, limit).astype(form.stored)
    return stored.astype(_ordered(form, endianness)).tobytes()


def decode(data: bytes, dtype: EmbedDType, endianness: Endianness = "native") -> np.ndarray:
    """Return the numbers of `encode` as `(count,)` float32. Raises `ValueError` if `data` ends inside of one."""
    form = EMBED_DTYPES[dtype]
    stored = np.frombuffer(data, dtype=_ordered(form, endianness)).astype(form.stored)
    if not form.mantissa:
        return stored.astype(np.float32)
    sign = 1 << (form.itemsize * 8 - 1)
    codes = (stored & (sign - 1)).astype(np.int64)
    values = np.append(_values(form), np.full(sign - form.finite_codes, np.nan, np.float32))[codes]
    return np.where(stored & sign, -values, values).astype(np.float32)


def to_base64(vector: np.ndarray, dtype: EmbedDType, endianness: Endianness) -> str:
    """Return `encode` as base64 text."""
    return base64.b64encode(encode(vector, dtype, endianness)).decode("ascii")


def to_bytes(
    vectors: Sequence[np.ndarray], dtype: EmbedDType, endianness: Endianness
) -> tuple[bytes, list[dict[str, Any]]]:
    """Return all vectors one after another, and where each is.

    Returns:
        The bytes, and per vector `index`, `embed_dtype`, `endianness`, `start`, `end` (in bytes) and `shape`.
    """
    parts, items, start = [], [], 0
    for index, vector in enumerate(vectors):
        parts.append(encode(vector, dtype, endianness))
        end = start + len(parts[-1])
        items.append(
            {
                "index": index,
                "embed_dtype": dtype,
                "endianness": endianness,
                "start": start,
                "end": end,
                "shape": list(vector.shape),
            }
        )
        start = end
    return b"".join(parts), items


def _ordered(form: NumberFormat, endianness: Endianness) -> np.dtype[Any]:
    order = {"native": sys.byteorder, "little": "little", "big": "big"}[endianness]
    return np.dtype(form.stored).newbyteorder("<" if order == "little" else ">")


def _to_codes(vector: np.ndarray, form: NumberFormat) -> np.ndarray:
    """Round to the format's numbers: the nearest one, of two that are as near the one with the even code."""
    values = _values(form)
    size = np.abs(vector).astype(np.float64)
    above = np.clip(np.searchsorted(values, size), 1, len(values) - 1)
    below = above - 1
    middle = (values[below].astype(np.float64) + values[above]) / 2
    up = (size > middle) | ((size == middle) & (above % 2 == 0))
    codes = np.where(up, above, below)
    codes[np.isnan(vector)] = form.finite_codes if form.exponent == 4 else form.finite_codes + 1
    sign = np.signbit(vector).astype(np.int64) << (form.itemsize * 8 - 1)
    return np.asarray(codes | sign).astype(form.stored)


@cache
def _values(form: NumberFormat) -> np.ndarray:
    """Return the finite numbers that are not negative, by code, float32."""
    codes = np.arange(form.finite_codes)
    exponents, mantissas = codes >> form.mantissa, codes & ((1 << form.mantissa) - 1)
    bias = (1 << (form.exponent - 1)) - 1
    fractions = mantissas / (1 << form.mantissa) + (exponents > 0)
    found: np.ndarray = np.ldexp(fractions, np.maximum(exponents, 1) - bias).astype(np.float32)
    return found
