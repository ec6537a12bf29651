"""Operations in plain torch: the executable specification that faster forms are held to."""

from core.ops.activation import gelu, gelu_and_mul, gelu_tanh, gelu_tanh_and_mul, relu, silu, silu_and_mul
from core.ops.norm import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from core.ops.rotary import apply_rotary, inverse_frequencies, rotary, rotary_table
from core.ops.sampling import argmax, draw

__all__ = [
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
    "relu",
    "rms_norm",
    "rotary",
    "rotary_table",
    "silu",
    "silu_and_mul",
]
