"""Manifest of the distribution: its plugins' descriptors, as data; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import KernelSpec
from core.api.kernels import DimRule

FORM = "float8_e4m3fn/128x128:float32@float8:128"
"""Weights in blocks of 128 x 128, activations rounded in runs of 128 inputs: what DeepSeek V3 introduced."""


def _product(op: str, path: str, summary: str) -> KernelSpec:
    return KernelSpec(
        name=f"deepgemm_{op}",
        impl=f"core_plugin_deepgemm.{path}",
        api=1,
        summary=summary,
        band=4,
        requires=("deep-gemm>=2.0,<3",),
        imports=("deep_gemm",),
        op=op,
        devices=frozenset({"cuda"}),
        dtypes=frozenset({"bfloat16"}),
        dims={"inputs": DimRule(multiple_of=128), "outputs": DimRule(multiple_of=64)},
        forms=(FORM,),
        refine="core_plugin_deepgemm.fits:fits",
    )


LINEAR = _product("linear", "linear:Linear", "Float8 weights in blocks of 128 x 128, by DeepGEMM")
EXPERTS_IN = _product("experts_in", "experts:ExpertsIn", "The same of all experts, in one product for the rows of each")
EXPERTS_OUT = _product("experts_out", "experts:ExpertsOut", "The same, results weighed and summed up for each token")
