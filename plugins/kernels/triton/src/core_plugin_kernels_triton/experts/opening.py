"""How a tile of an expert's weight comes into a product: the place for further forms of weights."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weight_tile(weight, expert, n, k, rows, inputs, expert_stride, row_stride):
    """Return the weights of outputs `n (N,)` and inputs `k (K,)` of an expert, `(K, N)` in the dtype of activations.

    What lies outside is 0. Weights are plain: `(experts, rows, inputs)`, inputs next to each other.
    """
    base = weight + expert.to(tl.int64) * expert_stride
    at = base + n.to(tl.int64)[None, :] * row_stride + k[:, None]
    return tl.load(at, mask=(k < inputs)[:, None] & (n < rows)[None, :], other=0.0)
