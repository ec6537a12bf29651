"""Kernel drivers: native forms of core's operations, with the signatures of `core.ops`."""

from __future__ import annotations

from torch import Tensor

from core_plugin_cpu.native.elementwise import add_rms_norm, gated, rms_norm, rotary
from core_plugin_cpu.native.sampling import argmax, draw

__all__ = ["add_rms_norm", "argmax", "draw", "gelu_and_mul", "gelu_tanh_and_mul", "rms_norm", "rotary", "silu_and_mul"]


def silu_and_mul(x: Tensor) -> Tensor:
    """`silu(gate) * up` of `x (..., 2 * size)`."""
    return gated(x, "silu")


def gelu_and_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` of `x (..., 2 * size)`, with the exact GELU."""
    return gated(x, "gelu")


def gelu_tanh_and_mul(x: Tensor) -> Tensor:
    """`gelu(gate) * up` of `x (..., 2 * size)`, with the tanh approximation."""
    return gated(x, "gelu_pytorch_tanh")
