"""Descriptors of the products; imports neither torch nor Triton."""

from __future__ import annotations

from core.api.descriptors import KernelSpec
from core.api.kernels import DimRule

_PACKAGE = "core_plugin_kernels_triton.products"
MOST_INPUTS = 65536
"""Greatest row of activations that a program rounds, and sums of int8 by int8 fit into 32 bits."""

BLOCKS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q[23456]_K", "IQ4_NL", "IQ4_XS", "MXFP4")
"""Blocks of GGUF, as globs."""

FORMS = (
    "int[2-8]/*:float32*@*",
    "float8_e4m3fn/*@*",
    "float8_e5m2/*@*",
    "e2m1/*@*",
    "nf4/1x*:float32@as_is",
    "fp4/1x*:float32@as_is",
    *(f"gguf:{name}@as_is" for name in BLOCKS),
)


def _product(op: str, name: str, summary: str) -> KernelSpec:
    return KernelSpec(
        name=f"triton_{name}",
        impl=f"{_PACKAGE}.layers:StoredProduct",
        api=1,
        summary=f"{summary}, opened in Triton while they are multiplied with",
        band=3,
        imports=("triton",),
        op=op,
        devices=frozenset({"cuda", "xpu"}),
        dtypes=frozenset({"float32", "bfloat16", "float16"}),
        dims={"inputs": DimRule(most=MOST_INPUTS)},
        forms=FORMS,
        options=f"{_PACKAGE}.options:ProductOptions",
        refine=f"{_PACKAGE}.refine:product",
    )


LINEAR = _product("linear", "linear", "Quantized weights as they are stored")
STORED_LOOKUP = _product("lookup", "stored_lookup", "Quantized embeddings and output projections as they are stored")
