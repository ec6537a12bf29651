"""Operations in plain torch: the executable specification that faster forms are held to."""

from core.ops.activation import (
    gelu,
    gelu_and_mul,
    gelu_tanh,
    gelu_tanh_and_mul,
    quick_gelu,
    relu,
    relu_squared,
    sigmoid,
    silu,
    silu_and_mul,
    tanh,
)
from core.ops.logits import add_bias, mask_tokens, penalize
from core.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from core.ops.rotary import apply_rotary, inverse_frequencies, rotary, rotary_interleaved, rotary_table
from core.ops.sampling import argmax, draw

__all__ = [
    "add_bias",
    "add_layer_norm",
    "add_rms_norm",
    "apply_rotary",
    "argmax",
    "draw",
    "gelu",
    "gelu_and_mul",
    "gelu_tanh",
    "gelu_tanh_and_mul",
    "inverse_frequencies",
    "layer_norm",
    "mask_tokens",
    "penalize",
    "quick_gelu",
    "relu",
    "relu_squared",
    "rms_norm",
    "rotary",
    "rotary_interleaved",
    "rotary_table",
    "sigmoid",
    "silu",
    "silu_and_mul",
    "tanh",
]
