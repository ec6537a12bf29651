"""How a tile of an expert's plain weight comes into a product; of stored ones `products.kernels.opening` has it."""

from __future__ import annotations

import triton
import triton.language as tl

PLAIN = tl.constexpr(-1)
"""Kind of a weight in the dtype of activations; the other kinds are those of `products.kernels.kinds`."""


@triton.jit
def weight_tile(weight, n, k, rows, inputs, row_stride):
    """Return the weights of outputs `n (N,)` int64 and inputs `k (K,)`, `(K, N)` in the dtype of activations.

    What lies outside is 0. Weights are plain: `(rows, inputs)`, inputs next to each other.
    """
    at = weight + (n * row_stride)[None, :] + k[:, None]
    return tl.load(at, mask=(k < inputs)[:, None] & (n < rows)[None, :], other=0.0)
