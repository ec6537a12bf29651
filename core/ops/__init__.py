"""Operations in plain torch: the executable specification that faster forms are held to."""

from core.ops.activation import gelu_and_mul, gelu_tanh_and_mul, silu_and_mul
from core.ops.norm import add_rms_norm, rms_norm
from core.ops.rotary import apply_rotary, inverse_frequencies, rotary_table

__all__ = [
    "add_rms_norm",
    "apply_rotary",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "inverse_frequencies",
    "rms_norm",
    "rotary_table",
    "silu_and_mul",
]
