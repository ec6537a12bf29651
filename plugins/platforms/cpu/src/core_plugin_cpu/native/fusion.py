"""Recorded calls that become one: what a result is needed for once does not have to be stored in between."""

from __future__ import annotations

from core_plugin_cpu.native.elementwise import GATED
from core_plugin_cpu.native.gemm import GEMM, GEMM_GATED
from core_plugin_cpu.native.library import library
from core_plugin_cpu.native.uses import Homes, Item, TorchCall


def fuse(calls: list[Item], homes: Homes) -> list[Item]:
    """Return the calls with every product and the gated activation of its results in one.

    Args:
        homes: Memory that nobody but these calls looks at.
    """
    # An entry was added and none changed, so a library from before it has the same ABI number.
    if not hasattr(library(), "core_cpu_gemm_gated"):
        return calls
    fused: list[Item] = []
    index = 0
    while index < len(calls):
        both = _gated_product(calls, index, homes) if index + 1 < len(calls) else None
        fused.append(calls[index] if both is None else (GEMM_GATED, both))
        index += 1 if both is None else 2
    return fused


def _gated_product(calls: list[Item], index: int, homes: Homes) -> bytes | None:
    """Return the arguments of the product at `index` and the activation after it in one, if they fit."""
    first, second = calls[index], calls[index + 1]
    if isinstance(first, TorchCall) or isinstance(second, TorchCall):
        return None
    (entry, packed), (next_entry, next_packed) = first, second
    if entry is not GEMM or next_entry is not GATED:
        return None
    product, gated = entry.unpack(packed), next_entry.unpack(next_packed)
    fits = (
        not product["best"]
        and gated["x"] == product["y"]
        and (gated["x_stride"], 2 * gated["size"]) == (product["y_stride"], product["n"])
        and (gated["rows"], gated["dtype"]) == (product["m"], product["y_dtype"])
    )
    between = homes.at(int(product["y"]))
    if not fits or between is None or between.calls() != {index, index + 1}:
        return None
    fields = {**product, "out": gated["out"], "out_stride": gated["out_stride"], "activation": gated["activation"]}
    return GEMM_GATED.pack(*(fields[name] for name in GEMM_GATED.fields))
