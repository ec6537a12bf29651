"""Recorded calls that become one: what a result is needed for once does not have to be stored in between."""

from __future__ import annotations

from core_plugin_cpu.native.elementwise import GATED
from core_plugin_cpu.native.gemm import GEMM, GEMM_GATED, gated_rows
from core_plugin_cpu.native.library import library
from core_plugin_cpu.native.uses import Home, Homes, Item, TorchCall


def fuse(calls: list[Item], homes: Homes) -> tuple[list[Item], dict[int, int]]:
    """Make one call of every product and the gated activation of its results.

    Args:
        homes: Memory that nobody but these calls looks at.

    Returns:
        The calls, and the bytes that they need of memory, by where it begins, which before had to hold all results.
    """
    # Entries were added and none changed, so a library from before them has the same ABI number.
    if not hasattr(library(), "core_cpu_gemm_gated_rows"):
        return calls, {}
    fused: list[Item] = []
    sizes: dict[int, int] = {}
    index = 0
    while index < len(calls):
        found = _gated_product(calls, index, homes)
        if found is None:
            fused.append(calls[index])
        else:
            both, between = found
            fused.append((GEMM_GATED, both))
            sizes[between.begin] = between.size * gated_rows(both) // int(GEMM_GATED.unpack(both)["m"])
        index += 1 if found is None else 2
    return fused, sizes


def _gated_product(calls: list[Item], index: int, homes: Homes) -> tuple[bytes, Home] | None:
    """Return the arguments of the product at `index` and the activation after it in one, and what is between them.

    None: they do not fit.
    """
    if index + 1 == len(calls):
        return None
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
    if not fits or between is None or between.calls() != {index, index + 1} or between.begin != product["y"]:
        return None
    fields = {**product, "out": gated["out"], "out_stride": gated["out_stride"], "activation": gated["activation"]}
    return GEMM_GATED.pack(*(fields[name] for name in GEMM_GATED.fields)), between
