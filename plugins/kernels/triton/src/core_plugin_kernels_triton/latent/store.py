"""Storing what a token keeps at its slot: a latent with its rotated key behind, or an index key."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.attention.form import power_of_two
from core_plugin_kernels_triton.attention.store import stored
from core_plugin_kernels_triton.latent.form import tiles
from core_plugin_kernels_triton.launch import launch


@triton.jit(do_not_specialize=["tokens"], do_not_specialize_on_alignment=["slots"])
def store_row_kernel(
    x,
    kv,
    slots,
    tokens,
    scale,
    x_token,
    kv_block,
    kv_token,
    begin,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FLOAT8: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Store `WIDTH` numbers of `ROWS` tokens, from place `begin` of a token on; float8 is divided by `scale` before."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mine = token < tokens
    place = tl.arange(0, BLOCK)
    there = mine[:, None] & (place < WIDTH)[None, :]
    slot = tl.load(slots + token, mask=mine, other=0)
    at = kv + slot // BLOCK_SIZE * kv_block + slot % BLOCK_SIZE * kv_token + begin
    values = tl.load(x + (token * x_token)[:, None] + place[None, :], mask=there, other=0.0)
    tl.store(at[:, None] + place[None, :], stored(values, scale, kv.dtype.element_ty, FLOAT8), mask=there)


@launch("Tensor x, Tensor(a!) kv, Tensor slots, int begin, int float8, float scale=1.0")
def store_rows(x: Tensor, kv: Tensor, slots: Tensor, begin: int, float8: int, scale: float = 1.0) -> None:
    """Store `x (tokens, width)` at slots `(tokens,)` int64 of `kv (blocks, block_size, numbers of a token)`.

    Args:
        begin: Where they begin among the numbers of a token.
        float8: 1: as bytes of e4m3fn; 2: of e5m2; 0: in the cache's dtype.
        scale: What float8 is divided by before it is rounded.
    """
    x = x if x.stride(1) == 1 else x.contiguous()
    (tokens, width), rows = x.shape, tiles(x.device)["stored"]
    store_row_kernel[(-(-tokens // rows),)](
        *(x, kv, slots, tokens, scale, x.stride(0), kv.stride(0), kv.stride(1), begin),
        WIDTH=width,
        BLOCK=power_of_two(width),
        BLOCK_SIZE=kv.shape[1],
        FLOAT8=float8,
        ROWS=rows,
        num_warps=4,
    )
