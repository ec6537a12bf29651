"""Operations that kernels may implement, with their reference forms: the executable specification of each."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.ops.activation import gelu, gelu_and_mul, gelu_tanh, gelu_tanh_and_mul, silu_and_mul
from core.ops.experts import ReferenceExpertsIn, ReferenceExpertsOut, add_identities, route
from core.ops.logits import add_bias, mask_tokens, penalize
from core.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from core.ops.products import ReferenceProduct
from core.ops.recurrent import causal_conv, gated_recurrence, linear_attention, selective_scan
from core.ops.rotary import rotary, rotary_interleaved
from core.ops.sampling import argmax, draw

Op = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """An operation.

    Attributes:
        reference: Its form in plain torch; a kernel has the same signature and values.
        dims: Names of the sizes that are known when a layer asks for it.
    """

    reference: Op
    dims: tuple[str, ...] = ()


REGISTRY: Mapping[str, OpSpec] = types.MappingProxyType(
    {
        "rms_norm": OpSpec(rms_norm, ("size",)),
        "add_rms_norm": OpSpec(add_rms_norm, ("size",)),
        "layer_norm": OpSpec(layer_norm, ("size",)),
        "add_layer_norm": OpSpec(add_layer_norm, ("size",)),
        "gelu": OpSpec(gelu),
        "gelu_tanh": OpSpec(gelu_tanh),
        "silu_and_mul": OpSpec(silu_and_mul),
        "gelu_and_mul": OpSpec(gelu_and_mul),
        "gelu_tanh_and_mul": OpSpec(gelu_tanh_and_mul),
        "rotary": OpSpec(rotary, ("head_dim", "rotary_dim")),
        "rotary_interleaved": OpSpec(rotary_interleaved, ("head_dim", "rotary_dim")),
        "route": OpSpec(route, ("experts", "top_k")),
        "add_identities": OpSpec(add_identities),
        "causal_conv": OpSpec(causal_conv, ("channels", "width")),
        "linear_attention": OpSpec(linear_attention, ("key_dim", "value_dim")),
        "selective_scan": OpSpec(selective_scan, ("channels", "state_dim")),
        "gated_recurrence": OpSpec(gated_recurrence, ("channels",)),
        "argmax": OpSpec(argmax),
        "draw": OpSpec(draw),
        "mask_tokens": OpSpec(mask_tokens),
        "add_bias": OpSpec(add_bias),
        "penalize": OpSpec(penalize),
        "linear": OpSpec(ReferenceProduct, ("inputs", "outputs")),
        "lookup": OpSpec(ReferenceProduct, ("inputs", "outputs")),
        "experts_in": OpSpec(ReferenceExpertsIn, ("inputs", "outputs", "experts")),
        "experts_out": OpSpec(ReferenceExpertsOut, ("inputs", "outputs", "experts")),
    }
)
"""Operation -> specification; the same names as `core.api.OPS`."""
