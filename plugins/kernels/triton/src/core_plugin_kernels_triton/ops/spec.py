"""Descriptors of the operations; imports neither torch nor Triton."""

from __future__ import annotations

from collections.abc import Mapping

from core.api.descriptors import KernelSpec
from core.api.kernels import DimRule

_PACKAGE = "core_plugin_kernels_triton.ops"
_WIDEST = 32768
"""Greatest row that a program holds at once."""


def _kernel(op: str, module: str, summary: str, dims: Mapping[str, DimRule] | None = None) -> KernelSpec:
    return KernelSpec(
        name=f"triton_{op}",
        impl=f"{_PACKAGE}.{module}",
        api=1,
        summary=f"{summary}, in Triton",
        band=3,
        imports=("triton",),
        op=op,
        # ROCm's type is `cuda`.
        devices=frozenset({"cuda", "xpu"}),
        dtypes=frozenset({"float32", "bfloat16", "float16"}),
        dims=dims or {},
        forms=("plain@as_is",) if op == "lookup" else (),
    )


_NORM = {"size": DimRule(most=_WIDEST)}

RMS_NORM = _kernel("rms_norm", "norm:rms_norm", "RMS norm", _NORM)
ADD_RMS_NORM = _kernel("add_rms_norm", "norm:add_rms_norm", "Residual sum and RMS norm in one pass", _NORM)
LAYER_NORM = _kernel("layer_norm", "norm:layer_norm", "Layer norm", _NORM)
ADD_LAYER_NORM = _kernel("add_layer_norm", "norm:add_layer_norm", "Residual sum and layer norm in one pass", _NORM)
GELU = _kernel("gelu", "activation:gelu", "GELU (erf)")
GELU_TANH = _kernel("gelu_tanh", "activation:gelu_tanh", "GELU (tanh)")
SILU_AND_MUL = _kernel("silu_and_mul", "activation:silu_and_mul", "SwiGLU in one pass")
GELU_AND_MUL = _kernel("gelu_and_mul", "activation:gelu_and_mul", "GeGLU (erf) in one pass")
GELU_TANH_AND_MUL = _kernel("gelu_tanh_and_mul", "activation:gelu_tanh_and_mul", "GeGLU (tanh) in one pass")
ROTARY = _kernel("rotary", "rotary:rotary", "Rotary embedding of queries and keys in one pass")
ROTARY_INTERLEAVED = _kernel(
    "rotary_interleaved", "rotary:rotary_interleaved", "Rotary embedding of neighbours in one pass"
)
LOOKUP = _kernel("lookup", "lookup:Lookup", "Rows of plain embeddings by token id")
ARGMAX = _kernel("argmax", "sampling:argmax", "Most likely tokens, sections of the vocabulary beside each other")
DRAW = _kernel("draw", "sampling:draw", "Random tokens after top-k, top-p and min-p without a sort")
MASK_TOKENS = _kernel("mask_tokens", "logits:mask_tokens", "Tokens that a grammar forbids, from bits")
ADD_BIAS = _kernel("add_bias", "logits:add_bias", "Logit bias of all rows at once")
PENALIZE = _kernel("penalize", "logits:penalize", "Repetition, frequency and presence penalties in one pass")
