"""Times on a device."""

from __future__ import annotations

from triton.testing import do_bench

from core_plugin_kernels_triton.tune.cases import Call

WARM_UP, REPEATS = 10, 40
"""Milliseconds, each; the first call compiles."""


def milliseconds(call: Call) -> float:
    """Return the median time of a call, caches of the card emptied before each."""
    return float(do_bench(call, warmup=WARM_UP, rep=REPEATS, return_mode="median"))
