"""Manifest of the distribution: its plugins' descriptors, beside each of its parts; none imports torch or Triton."""

from __future__ import annotations

from core_plugin_kernels_triton.attention.spec import TRITON
from core_plugin_kernels_triton.experts.spec import (
    EXPERTS_IN,
    EXPERTS_OUT,
    ROUTE,
    STORED_EXPERTS_IN,
    STORED_EXPERTS_OUT,
)
from core_plugin_kernels_triton.ops.spec import (
    ADD_BIAS,
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    ARGMAX,
    DRAW,
    GELU,
    GELU_AND_MUL,
    GELU_TANH,
    GELU_TANH_AND_MUL,
    LAYER_NORM,
    LOOKUP,
    MASK_TOKENS,
    PENALIZE,
    RMS_NORM,
    ROTARY,
    ROTARY_INTERLEAVED,
    SILU_AND_MUL,
)
from core_plugin_kernels_triton.products.spec import LINEAR, STORED_LOOKUP
from core_plugin_kernels_triton.recurrent.spec import (
    CAUSAL_CONV,
    GATED_RECURRENCE,
    LINEAR_ATTENTION,
    SELECTIVE_SCAN,
)
from core_plugin_kernels_triton.tune.spec import BENCH_TUNE

__all__ = [
    "ADD_BIAS",
    "ADD_LAYER_NORM",
    "ADD_RMS_NORM",
    "ARGMAX",
    "BENCH_TUNE",
    "CAUSAL_CONV",
    "DRAW",
    "EXPERTS_IN",
    "EXPERTS_OUT",
    "GATED_RECURRENCE",
    "GELU",
    "GELU_AND_MUL",
    "GELU_TANH",
    "GELU_TANH_AND_MUL",
    "LAYER_NORM",
    "LINEAR",
    "LINEAR_ATTENTION",
    "LOOKUP",
    "MASK_TOKENS",
    "PENALIZE",
    "RMS_NORM",
    "ROTARY",
    "ROTARY_INTERLEAVED",
    "ROUTE",
    "SELECTIVE_SCAN",
    "SILU_AND_MUL",
    "STORED_EXPERTS_IN",
    "STORED_EXPERTS_OUT",
    "STORED_LOOKUP",
    "TRITON",
]
