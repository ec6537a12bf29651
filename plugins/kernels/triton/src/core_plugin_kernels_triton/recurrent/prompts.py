"""Linear attention of rows with many tokens: the launches of `chunks` or `key_chunks`, and of `steps`.

The tokens of a step go through both launches in windows, so that what lies between takes no more than the `scratch` of
the table, in MiB; a row that a window cuts goes on from its state.

Work and bytes, of C tokens of a chunk, a head of key size K and value size V, and B bytes of a number (2 in bfloat16,
else 4); delta rule in brackets:

- `chunk_kernel`, a program for each chunk and head: one product of C C K [3 more] and one of C C V [1 more] [and for
  the inverse 15 steps of substitution, and products of less than C C C / 3 together]. Reads q, k, v; writes P X, 8 C
  bytes, and [C (2 K + V) B bytes].
- `step_kernel`, a program for each row, head and `values` columns of V, does a step for each chunk, one behind the
  other: two products of C K V [three], [of which two wait for each other]; no sum over threads. A step reads
  C (2 K + 2 `values`) [C (3 K + 2 `values`)] numbers and writes C `values`; the state is read and written once.

Where keys decay one by one (`key_chunk_kernel`), a chunk has C / 16 - 1 products of C C K [twice as many] among tokens
of different blocks of 16, compares 16 C K numbers [32 C K] within blocks without products, and writes
C (2 K [3 K + V]) B and 4 K bytes; steps are the same.

A prompt of 8192 tokens with 32 heads of 128 by 128 (Qwen3-Next) in bfloat16, chunks of 64: 4096 programs and 26 GFLOP,
then 128 steps of 64 programs (of 64 columns) and 26 GFLOP; 203 MB lie between them, in one window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.recurrent.chunks import chunk_kernel
from core_plugin_kernels_triton.recurrent.key_chunks import key_chunk_kernel
from core_plugin_kernels_triton.recurrent.rows import tiles
from core_plugin_kernels_triton.recurrent.steps import step_kernel

TOKEN = 8
"""Bytes of scratch memory that each token of each head takes besides numbers of the dtype of products."""


class Form(NamedTuple):
    """Constants that the kernels are compiled for.

    Attributes:
        chunk: Tokens of a chunk.
        keys, values: Rows and columns of a state that one program has.
        block: Columns of keys and values that a chunk takes at a time.
        wide: Whether products are of float32: bfloat16 goes as it is, and float16 has too few exponents for a state.
        precision: How a device multiplies float32.
    """

    chunk: int
    keys: int
    values: int
    block: int
    wide: bool
    precision: str

    def constants(self) -> dict[str, Any]:
        """Return what both kernels take as constants."""
        kind = tl.float32 if self.wide else tl.bfloat16
        return {"CHUNK": self.chunk, "TYPE": kind, "PRECISION": self.precision}


def form_of(table: Mapping[str, int], dtype: torch.dtype, key_dim: int, value_dim: int) -> Form:
    """Return the form for activations of a dtype: wide numbers and keys get smaller tiles, for the shared memory."""
    wide, keys = dtype != torch.bfloat16, max(16, power_of_two(key_dim))
    values = min(table["values"] * 128 // max(128, keys) // (1 + wide), power_of_two(value_dim))
    split = table["tf32x3"] and dtype != torch.float32
    return Form(
        chunk=max(16, table["tokens"] * 128 // (2 * max(128, keys)) if wide else table["tokens"]),
        keys=keys,
        values=max(16, values),
        block=max(16, min(table["columns"], power_of_two(max(key_dim, value_dim)))),
        wide=wide,
        precision="tf32x3" if split else "ieee",
    )


@launch(
    "Tensor q, Tensor k, Tensor v, Tensor decay, Tensor? beta, Tensor(a!) out, Tensor(b!) memory, Tensor slots, "
    "Tensor fresh, Tensor starts, float scale, int begin, int end"
)
def launch_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor | None,
    out: Tensor,
    memory: Tensor,
    slots: Tensor,
    fresh: Tensor,
    starts: Tensor,
    scale: float,
    begin: int,
    end: int,
) -> None:
    """Write what tokens of rows that are long find to `out`, and the states of these rows.

    Args:
        begin, end: All these rows are between these tokens of the step.
    """
    (_, heads, value_dim), (_, key_heads, key_dim), rows = v.shape, k.shape, slots.shape[0]
    table, delta, per_key = tiles(v.device)["chunks"], beta is not None, decay.dim() == v.dim()
    form = form_of(table, q.dtype, key_dim, value_dim)
    kind = torch.float32 if form.wide else torch.bfloat16
    widths = [value_dim * delta, key_dim * delta, key_dim * (delta or per_key), key_dim * per_key]
    window = (table["scratch"] << 20) // (heads * (sum(widths) * kind.itemsize + TOKEN))
    window = min(max(1, window // form.chunk) * form.chunk, end - begin)

    def scratch(lines: int, width: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(lines, heads, width, dtype=dtype, device=v.device)

    kept = (
        scratch(window // form.chunk + rows, key_dim, torch.float32) if per_key else scratch(window, 2, torch.float32)
    )
    between = [scratch(window, width, kind) if width else None for width in widths]
    sizes = (heads, heads // key_heads, key_dim, value_dim)
    strides = (q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1))
    same = {"DELTA": delta, "FEWEST": tiles(v.device)["attention"]["fewest"], **form.constants()}
    for first in range(begin, end, window):
        last = min(first + window, end)
        kernel = key_chunk_kernel if per_key else chunk_kernel
        kernel[heads, (last - first) // form.chunk + rows](
            *(
                q,
                k,
                v,
                decay,
                beta,
                out,
                kept,
                *between[: 3 + per_key],
                starts,
                rows,
                first,
                last,
                scale,
                *sizes,
                *strides,
            ),
            **same,
            BLOCK=form.block,
            num_warps=table["warps"],
            num_stages=table["stages"],
        )
        step_kernel[-(-value_dim // form.values), heads, rows](
            *(q, k, v, out, memory, kept, *between, slots, fresh, starts, first, last, scale, *sizes, *strides),
            memory.stride(0),
            **same,
            PER_KEY=per_key,
            BLOCK_K=form.keys,
            BLOCK_V=form.values,
            num_warps=table["step_warps"],
            num_stages=table["step_stages"],
        )
