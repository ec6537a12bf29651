"""Kernel drivers: native forms of core's operations, with the signatures of `core.ops`."""

from __future__ import annotations

from torch import Tensor

from core_plugin_cpu.native.elementwise import (
    activate,
    add_layer_norm,
    add_rms_norm,
    gated,
    layer_norm,
    rms_norm,
    rotary,
)
from core_plugin_cpu.native.experts import add_identities, route
from core_plugin_cpu.native.recurrent import causal_conv, gated_recurrence, linear_attention, selective_scan
from core_plugin_cpu.native.sampling import argmax, draw

__all__ = [
    "add_identities",
    "add_layer_norm",
    "add_rms_norm",
    "argmax",
    "causal_conv",
    "draw",
    "gated_recurrence",
    "gelu",
    "gelu_and_mul",
    "gelu_tanh",
    "gelu_tanh_and_mul",
    "layer_norm",
    "linear_attention",
    "rms_norm",
    "rotary",
    "rotary_interleaved",
    "route",
    "selective_scan",
    "silu_and_mul",
]


def rotary_interleaved(positions: Tensor, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys by position, where dimensions 2i and 2i + 1 form a pair."""
    return rotary(positions, q, k, table, interleaved=True)


def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(gate) * up` of `x (..., 2 * size)`."""
    return gated(x, "silu")


def gelu(x: Tensor) -> Tensor:
    """The exact GELU."""
    return activate(x, "gelu")


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of GELU."""
    return activate(x, "gelu_pytorch_tanh")


def gelu_and_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` of `x (..., 2 * size)`, with the exact GELU."""
    return gated(x, "gelu")


def gelu_tanh_and_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` of `x (..., 2 * size)`, with the tanh approximation."""
    return gated(x, "gelu_pytorch_tanh")
