"""Descriptors of the recurrences; imports neither torch nor Triton."""

from __future__ import annotations

from collections.abc import Mapping

from core.api.descriptors import KernelSpec
from core.api.kernels import DimRule

_PACKAGE = "core_plugin_kernels_triton.recurrent"


def _kernel(op: str, module: str, summary: str, dims: Mapping[str, DimRule] | None = None) -> KernelSpec:
    return KernelSpec(
        name=f"triton_{op}",
        impl=f"{_PACKAGE}.{module}:{op}",
        api=1,
        summary=f"{summary}, in Triton",
        band=3,
        imports=("triton",),
        op=op,
        # ROCm's type is `cuda`.
        devices=frozenset({"cuda", "xpu"}),
        dtypes=frozenset({"float32", "bfloat16", "float16"}),
        dims=dims or {},
    )


CAUSAL_CONV = _kernel("causal_conv", "conv", "Short convolutions over tokens", {"width": DimRule(least=2, most=16)})
LINEAR_ATTENTION = _kernel(
    "linear_attention",
    "attention",
    "Linear attention and delta rule, prompts by chunks",
    {"key_dim": DimRule(most=256)},
)
SELECTIVE_SCAN = _kernel("selective_scan", "scan", "Mamba's scan, prompts by chunks", {"state_dim": DimRule(most=256)})
GATED_RECURRENCE = _kernel("gated_recurrence", "scan", "Decaying sums of channels")
