"""Recorded calls that become one: what a result is needed for once does not have to be stored in between."""

from __future__ import annotations

from torch import Tensor

from core_plugin_cpu.native.elementwise import GATED
from core_plugin_cpu.native.entry import Entry
from core_plugin_cpu.native.gemm import GEMM, GEMM_GATED

Call = tuple[Entry, bytes]
"""An entry and its packed arguments."""


def fuse(calls: list[Call], private: list[Tensor]) -> list[Call]:
    """Return the calls with every product and the gated activation of its results in one.

    Args:
        private: Memory that nobody but these calls looks at.
    """
    fused: list[Call] = []
    index = 0
    while index < len(calls):
        both = _gated_product(calls, index, private) if index + 1 < len(calls) else None
        fused.append(calls[index] if both is None else (GEMM_GATED, both))
        index += 1 if both is None else 2
    return fused


def _gated_product(calls: list[Call], index: int, private: list[Tensor]) -> bytes | None:
    """Return the arguments of the product at `index` and the activation after it in one, if they fit."""
    (entry, packed), (next_entry, next_packed) = calls[index], calls[index + 1]
    if entry is not GEMM or next_entry is not GATED:
        return None
    product, gated = entry.unpack(packed), next_entry.unpack(next_packed)
    fits = (
        not product["best"]
        and gated["x"] == product["y"]
        and (gated["x_stride"], 2 * gated["size"]) == (product["y_stride"], product["n"])
        and (gated["rows"], gated["dtype"]) == (product["m"], product["y_dtype"])
    )
    if not fits or not _used_by(calls, int(product["y"]), private) == [index, index + 1]:
        return None
    fields = {**product, "out": gated["out"], "out_stride": gated["out_stride"], "activation": gated["activation"]}
    return GEMM_GATED.pack(*(fields[name] for name in GEMM_GATED.fields))


def _used_by(calls: list[Call], address: int, private: list[Tensor]) -> list[int]:
    """Return which calls point into the memory at `address`; none if it is not private."""
    for one in private:
        begin = one.untyped_storage().data_ptr()
        end = begin + one.untyped_storage().nbytes()
        if begin <= address < end:
            return [
                index
                for index, (entry, packed) in enumerate(calls)
                if any(begin <= value < end for name, value in entry.unpack(packed).items() if name in entry.pointers)
            ]
    return []
