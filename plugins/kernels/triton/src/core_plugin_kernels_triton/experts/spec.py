"""Descriptors of routing and of experts' products; imports neither torch nor Triton."""

from __future__ import annotations

from typing import Any

from core.api.descriptors import KernelSpec
from core.api.kernels import DimRule
from core_plugin_kernels_triton.products.spec import FORMS, MOST_INPUTS

_PACKAGE = "core_plugin_kernels_triton.experts"
_MOST = 1023
"""Experts: a program holds all of them at once, and one more that stands for none."""


def _kernel(op: str, impl: str, summary: str, stored: str = "", **further: Any) -> KernelSpec:
    return KernelSpec(
        name=f"triton_{stored}{op}",
        impl=f"{_PACKAGE}.{impl}",
        api=1,
        summary=f"{summary}, in Triton",
        band=3,
        imports=("triton",),
        op=op,
        # ROCm's type is `cuda`.
        devices=frozenset({"cuda", "xpu"}),
        dtypes=frozenset({"float32", "bfloat16", "float16"}),
        **{"dims": {"experts": DimRule(most=_MOST)}, **further},
    )


def _opened(op: str, impl: str, summary: str) -> KernelSpec:
    # A product that keeps weights as they are stored comes before one that opens them.
    return _kernel(op, impl, summary, forms=("*@as_is",), priority=40)


def _stored(op: str, impl: str, summary: str) -> KernelSpec:
    return _kernel(
        op,
        impl,
        summary,
        "stored_",
        dims={"experts": DimRule(most=_MOST), "inputs": DimRule(most=MOST_INPUTS)},
        forms=FORMS,
        refine="core_plugin_kernels_triton.products.refine:product",
    )


ROUTE = _kernel("route", "route:route", "Choice of experts in one pass")
EXPERTS_IN = _opened(
    "experts_in", "products:ExpertsIn", "Experts' weights in the compute dtype, rows sorted on the device"
)
EXPERTS_OUT = _opened("experts_out", "products:ExpertsOut", "The same, results weighed and summed up in order")
STORED_EXPERTS_IN = _stored(
    "experts_in", "stored:StoredExpertsIn", "Experts' weights as they are stored, opened while they are multiplied with"
)
STORED_EXPERTS_OUT = _stored(
    "experts_out", "stored:StoredExpertsOut", "The same, results weighed and summed up in order"
)
