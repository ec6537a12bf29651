"""Activations rounded as a form says."""

from __future__ import annotations

import triton
import triton.language as tl

from core_plugin_kernels_triton.compat import cast, from_float8, to_float8

INT8 = tl.constexpr(0)
FLOAT8 = tl.constexpr(1)
FLOAT4 = tl.constexpr(2)


@triton.jit
def round_rows(
    x,
    whole,
    out,
    scales,
    inputs,
    stride,
    runs,
    whole_stride,
    KIND: tl.constexpr,
    POWER: tl.constexpr,
    WHOLE: tl.constexpr,
    CODES: tl.constexpr,
    BYTES: tl.constexpr,
    RUN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Round row `program` of `x (rows, inputs)`, `inputs <= BLOCK`, in runs of `RUN` inputs.

    A run's scale follows from its largest magnitude: it is a power of two with `POWER`; with `WHOLE` it is the
    row's own number in `whole` itself (float32, `whole_stride` 0: all rows have one), or of `FLOAT4` a number in e4m3
    times that. With `CODES` int8, the bytes of e4m3 or
    pairs of e2m1 in bytes go to `out`, and their scales to `scales (rows, runs)`: float32, or with `BYTES` powers in
    e8m0, and of `FLOAT4` with `WHOLE` the numbers in e4m3. Without, the rounded values go to `out`.
    """
    row = tl.program_id(0).to(tl.int64)
    COUNT: tl.constexpr = BLOCK // RUN
    k = tl.arange(0, BLOCK)
    known = k < inputs
    values = cast(tl.load(x + row * stride + k, mask=known, other=0.0), tl.float32)
    values = tl.reshape(values, (COUNT, RUN))
    strange = tl.max((values != values).to(tl.int32), 1) > 0
    largest = tl.max(tl.where(values == values, tl.abs(values), 0.0), 1)
    scale = _scale(largest, whole, row * whole_stride, KIND, POWER, WHOLE)
    scale = tl.where(strange, float("nan"), scale)
    ratio = tl.div_rn(values, tl.broadcast_to(scale[:, None], (COUNT, RUN)))
    if KIND == INT8:
        code = tl.where(ratio == ratio, _to_integer(ratio), 0.0)
        rounded = code
    elif KIND == FLOAT8:
        code = to_float8(ratio, False)
        rounded = from_float8(code, False).to(tl.float32)
    else:
        code = _to_e2m1(ratio)
        rounded = code
    place = out + row * inputs + k
    if CODES:
        if KIND == INT8:
            tl.store(place, tl.reshape(code.to(tl.int8), (BLOCK,)), mask=known)
        elif KIND == FLOAT8:
            tl.store(place, tl.reshape(code, (BLOCK,)), mask=known)
        else:
            low, high = tl.split(tl.reshape(_bits_of_e2m1(code), (BLOCK // 2, 2)))
            pair = tl.arange(0, BLOCK // 2)
            size = (inputs + 1) // 2
            tl.store(out + row * size + pair, (low | (high << 4)).to(tl.uint8), mask=pair < size)
        run = tl.arange(0, COUNT)
        if not BYTES:
            kept = scale
        elif POWER:
            kept = (scale.to(tl.int32, bitcast=True) >> 23).to(tl.uint8)
        else:
            kept = tl.where(strange, 0x7F, to_float8(_share(largest, tl.load(whole + row * whole_stride)), False))
        tl.store(scales + row * runs + run, kept.to(scales.dtype.element_ty), mask=run < runs)
    else:
        rounded = tl.reshape(rounded * scale[:, None], (BLOCK,))
        tl.store(place, cast(rounded, out.dtype.element_ty), mask=known)


@triton.jit
def _scale(largest, whole, place, KIND: tl.constexpr, POWER: tl.constexpr, WHOLE: tl.constexpr):
    if POWER:
        # The exponent of the largest magnitude becomes that of the largest number: 2^8 of e4m3, 2^2 of e2m1.
        exponent = (largest.to(tl.int32, bitcast=True) >> 23) - (8 if KIND == FLOAT8 else 2)
        bits = tl.where(exponent <= 0, 0x00400000, exponent << 23).to(tl.int32)
        scale = tl.where(largest > 0, bits.to(tl.float32, bitcast=True), 1.0)
    elif WHOLE:
        shared = tl.load(whole + place)
        if KIND == FLOAT4:
            scale = _share(largest, shared) * shared
        else:
            scale = tl.zeros(largest.shape, tl.float32) + shared
    else:
        most: tl.constexpr = 127.0 if KIND == INT8 else 448.0
        scale = tl.div_rn(largest, tl.full(largest.shape, most, tl.float32))
        scale = tl.where(scale > 0, scale, 1.0)
    return scale


@triton.jit
def _share(largest, shared):
    """Return the number in e4m3, as float32, whose product with `shared` is the scale of a run."""
    wanted = tl.div_rn(largest, tl.full(largest.shape, 6.0, tl.float32))
    wanted = tl.div_rn(wanted, tl.zeros(largest.shape, tl.float32) + shared)
    stored = from_float8(to_float8(wanted, False), False).to(tl.float32)
    return tl.where(stored > 0, stored, 1.0)


@triton.jit
def _bits_of_e2m1(x):
    """Return the codes of values of e2m1, int32; what is not a number is 0."""
    size = tl.where(x == x, tl.abs(x), 0.0)
    code = tl.where(size < 2, size * 2.0, tl.where(size < 4, size + 2.0, size * 0.5 + 4.0)).to(tl.int32)
    return code | tl.where(x < 0, 8, 0)


@triton.jit
def _to_integer(x):
    """Return the nearest integer, ties to even: sums with `1.5 * 2^23` are rounded to integers."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def _to_e2m1(x):
    """Return the nearest value of e2m1, ties to an even mantissa; what is too large becomes the largest."""
    size = tl.abs(x)
    step = tl.where(size < 2, 0.5, tl.where(size < 4, 1.0, 2.0))
    nearest = _to_integer(size / step) * step  # a step is a power of two: the quotient is exact
    nearest = tl.where(nearest > 6.0, 6.0, nearest)
    return tl.where(x < 0, -nearest, nearest)
