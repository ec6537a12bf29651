"""Products of rows by expert with the weights of their experts, and ordered sums over the experts of a token.

A tile is some rows of one expert. Which expert that is is found on the device, where the rows of each begin; there are
as many programs as any distribution of the rows needs, and those that have none end at once.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.compat import cast, dot
from core_plugin_kernels_triton.experts.opening import weight_tile
from core_plugin_kernels_triton.experts.tiles import tiles
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two, tiling


@triton.jit
def rows_of_tile(tile, starts, kinds, FEW: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the kind that a tile belongs to, its first row, and where the rows of the kind end.

    `FEW`: a tile begins at each row; those that do not begin at a multiple of `BLOCK_M` of their kind are to be left
    out: they are returned with their end. Else the first tile of kind e is `starts[e] // BLOCK_M + e`, which leaves
    each kind as many as it needs, and a spare one.
    """
    low = kinds * 0
    high = low + kinds
    while high - low > 1:
        middle = (low + high) // 2
        begin = tl.load(starts + middle)
        if FEW:
            begun = begin <= tile
        else:
            begun = begin // BLOCK_M + middle <= tile
        low = tl.where(begun, middle, low)
        high = tl.where(begun, high, middle)
    begin = tl.load(starts + low)
    end = tl.load(starts + low + 1)
    if FEW:
        row = tl.where((tile - begin) % BLOCK_M == 0, tile, end)
    else:
        row = begin + (tile - begin // BLOCK_M - low) * BLOCK_M
    return low, row, end


@triton.jit(do_not_specialize=["experts"], do_not_specialize_on_alignment=["order", "starts"])
def multiply_kernel(
    x,
    weight,
    bias,
    order,
    starts,
    out,
    rows,
    inputs,
    experts,
    x_stride,
    expert_stride,
    row_stride,
    bias_stride,
    TOP_K: tl.constexpr,
    INTO: tl.constexpr,
    BIASED: tl.constexpr,
    FEW: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Write a tile of `out (pairs, rows)`.

    `INTO`: rows of `x` are tokens, and results by expert, zeros without one. Else rows of `x` are by expert, and
    results by pair; those without an expert are not written.
    """
    kind, first, end = rows_of_tile(tl.program_id(0), starts, experts + 1, FEW, BLOCK_M)
    if first >= end:
        return
    m = first + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    live = m < end
    there = live[:, None] & (n < rows)[None, :]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    target = m
    if kind < experts:
        pair = tl.load(order + m, mask=live, other=0)
        if INTO:
            source = pair // TOP_K
        else:
            source = m
            target = pair
        begin = x + source.to(tl.int64)[:, None] * x_stride
        for start in range(0, inputs, BLOCK_K):
            k = start + tl.arange(0, BLOCK_K)
            given = tl.load(begin + k[None, :], mask=live[:, None] & (k < inputs)[None, :], other=0.0)
            tile = weight_tile(weight, kind, n, k, rows, inputs, expert_stride, row_stride)
            total = dot(given, tile, total)
        if BIASED:
            own = tl.load(bias + kind.to(tl.int64) * bias_stride + n, mask=n < rows, other=0.0)
            total += cast(own, tl.float32)[None, :]
    if INTO or kind < experts:
        at = out + target.to(tl.int64)[:, None] * rows + n[None, :]
        tl.store(at, cast(total, out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["tokens"])
def total_kernel(
    results,
    weights,
    ids,
    out,
    tokens,
    width,
    experts,
    blocks,
    TOP_K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a tile of `out (tokens, width)`: the results of each token's experts, weighed, one after another."""
    program = tl.program_id(0)
    token = (program // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    place = ((program % blocks) * BLOCK + tl.arange(0, BLOCK))[None, :]
    known = token < tokens
    inside = known[:, None] & (place < width)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for choice in range(TOP_K):
        pair = token * TOP_K + choice
        expert = tl.load(ids + pair, mask=known, other=-1)
        real = ((expert >= 0) & (expert < experts))[:, None]
        share = tl.load(weights + pair, mask=known, other=0.0)[:, None]
        value = tl.load(results + pair[:, None] * width + place, mask=inside & real, other=0.0)
        total += tl.where(real, share * cast(value, tl.float32), 0.0)
    tl.store(out + token[:, None] * width + place, cast(total, out.dtype.element_ty), mask=inside)


@launch("Tensor x, Tensor weight, Tensor? bias, Tensor order, Tensor starts, Tensor(a!) out, int top_k, bool into")
def launch_multiply(
    x: Tensor, weight: Tensor, bias: Tensor | None, order: Tensor, starts: Tensor, out: Tensor, top_k: int, into: bool
) -> None:
    """Multiply all rows with their experts' weights.

    Args:
        x: `(tokens, inputs)`, or `(pairs, inputs)` by expert; rows may lie apart.
        weight: `(experts, rows, inputs)`.
        bias: `(experts, rows)`.
        order, starts: As `by_expert` returns them.
        out: `(pairs, rows)` contiguous.
    """
    (experts, rows, inputs), pairs = weight.shape, order.shape[0]
    sizes = tiles(x.device)["multiply"]
    m, n, k = (sizes[one] for one in "mnk")
    n, k = (min(most, max(16, power_of_two(size))) for most, size in ((n, rows), (k, inputs)))
    spread = pairs // m + experts + 1
    multiply_kernel[(min(pairs, spread), -(-rows // n))](
        *(x, weight, bias, order, starts, out, rows, inputs, experts),
        *(x.stride(0), weight.stride(0), weight.stride(1), 0 if bias is None else bias.stride(0)),
        TOP_K=top_k,
        INTO=into,
        BIASED=bias is not None,
        FEW=pairs <= spread,
        BLOCK_M=m,
        BLOCK_N=n,
        BLOCK_K=k,
        num_warps=sizes["warps"],
        num_stages=sizes["stages"],
    )


@launch("Tensor results, Tensor weights, Tensor ids, Tensor(a!) out, int experts")
def launch_total(results: Tensor, weights: Tensor, ids: Tensor, out: Tensor, experts: int) -> None:
    """Sum up `results (T * k, width)` by `weights (T, k)` float32, where `ids (T, k)` are experts: `out (T, width)`."""
    tokens, width = out.shape
    tile = tiling(width, tiles(out.device)["total"])
    total_kernel[(tile.programs(tokens),)](
        *(results, weights, ids, out, tokens, width, experts, tile.blocks),
        TOP_K=ids.shape[1],
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
