"""Numbers of the kinds of codes and scales that the kernels are compiled for; `products.forms` names them."""

from __future__ import annotations

import triton.language as tl

INT = tl.constexpr(0)
E4M3 = tl.constexpr(1)
E5M2 = tl.constexpr(2)
E2M1 = tl.constexpr(3)
TABLE = tl.constexpr(4)
"""Sixteen values beside the weight: nf4 and fp4 of bitsandbytes."""

FILE = tl.constexpr(10)
"""The first of the blocks of GGUF."""
Q4_0 = tl.constexpr(10)
Q4_1 = tl.constexpr(11)
Q5_0 = tl.constexpr(12)
Q5_1 = tl.constexpr(13)
Q8_0 = tl.constexpr(14)
IQ4_NL = tl.constexpr(15)
MXFP4 = tl.constexpr(16)
NESTED = tl.constexpr(20)
"""The first of those with 256 values."""
Q2_K = tl.constexpr(20)
Q3_K = tl.constexpr(21)
Q4_K = tl.constexpr(22)
Q5_K = tl.constexpr(23)
Q6_K = tl.constexpr(24)
IQ4_XS = tl.constexpr(25)

NO_SCALE = tl.constexpr(0)
FLOAT32 = tl.constexpr(1)
E8M0 = tl.constexpr(2)
SCALE_E4M3 = tl.constexpr(3)

OPENED = tl.constexpr(0)
"""Weights are opened to the dtype that is multiplied in."""
INTEGERS = tl.constexpr(1)
"""int8 by int8, summed in int32."""
FLOATS = tl.constexpr(2)
"""e4m3 by e4m3."""
MICROSCALED = tl.constexpr(3)
"""float4 and float8 by these, in runs of inputs with scales of eight bits."""
