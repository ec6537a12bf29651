"""What routing and experts' products declare about themselves; imports neither torch nor Triton."""

from __future__ import annotations

from collections.abc import Mapping

from core.api.descriptors import KernelSpec
from core.api.kernels import DimRule

_PACKAGE = "core_plugin_kernels_triton.experts"
_MOST = 1023
"""Experts: a program holds all of them at once, and one more that stands for none."""


def _kernel(op: str, impl: str, summary: str, forms: tuple[str, ...] = ()) -> KernelSpec:
    dims: Mapping[str, DimRule] = {"experts": DimRule(most=_MOST)}
    return KernelSpec(
        name=f"triton_{op}",
        impl=f"{_PACKAGE}.{impl}",
        api=1,
        summary=f"{summary}, in Triton",
        band=3,
        # A product that keeps weights as they are stored comes before one that opens them.
        priority=40 if forms else 50,
        imports=("triton",),
        op=op,
        # ROCm's type is `cuda`.
        devices=frozenset({"cuda", "xpu"}),
        dtypes=frozenset({"float32", "bfloat16", "float16"}),
        dims=dims,
        forms=forms,
    )


_OPENED = ("*@as_is",)

ROUTE = _kernel("route", "route:route", "Choice of experts in one pass")
EXPERTS_IN = _kernel(
    "experts_in", "products:ExpertsIn", "Experts' weights in the compute dtype, rows sorted on the device", _OPENED
)
EXPERTS_OUT = _kernel("experts_out", "products:ExpertsOut", "The same, results weighed and summed up in order", _OPENED)
