"""Changing logits in place; forms as in `core.ops.logits`."""

from __future__ import annotations

import torch
from torch import Tensor

from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.kernels import logits as kernels
from core_plugin_kernels_triton.ops.tiles import power_of_two, tiles, tiling, warps


def mask_tokens(logits: Tensor, bits: Tensor) -> None:
    """Set the tokens of `logits (n, vocab)` whose bit of `bits (n, words)` int32 is not set to minus infinity."""
    if len(logits):
        launch_mask(logits, bits)


@launch("Tensor(a!) logits, Tensor bits")
def launch_mask(logits: Tensor, bits: Tensor) -> None:
    """Mask the logits."""
    rows, size = logits.shape
    bits = bits if bits.stride(1) == 1 else bits.contiguous()
    tile = tiling(size, tiles(logits.device)["logits"], rows)
    kernels.mask_tokens[(tile.programs(rows),)](
        *(logits, bits, rows, size, logits.stride(0), bits.stride(0), tile.blocks),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )


def add_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> None:
    """Add `values (t,)` to the tokens `ids (t,)` of the `rows (t,)` of `logits (n, vocab)`."""
    if len(rows):
        launch_bias(logits, rows, ids, values)


@launch("Tensor(a!) logits, Tensor rows, Tensor ids, Tensor values")
def launch_bias(logits: Tensor, rows: Tensor, ids: Tensor, values: Tensor) -> None:
    """Add the bias."""
    count = len(rows)
    sizes = tiles(logits.device)["logits"]
    block = min(sizes["tile"], power_of_two(count))
    kernels.add_bias[(-(-count // block),)](
        *(logits, rows.contiguous(), ids.contiguous(), values.contiguous(), count, logits.stride(0)),
        BLOCK=block,
        num_warps=warps(block, sizes["lane"]),
    )


def penalize(logits: Tensor, rows: Tensor, counts: Tensor, prompt: Tensor, strengths: Tensor) -> None:
    """Penalise what the `rows (m,)` of `logits (n, vocab)` have said: see `core.ops.logits.penalize`."""
    if len(rows):
        launch_penalties(logits, rows, counts, prompt, strengths)


@launch("Tensor(a!) logits, Tensor rows, Tensor counts, Tensor prompt, Tensor strengths")
def launch_penalties(logits: Tensor, rows: Tensor, counts: Tensor, prompt: Tensor, strengths: Tensor) -> None:
    """Penalise the logits."""
    entries, size = counts.shape
    tile = tiling(size, tiles(logits.device)["logits"], entries)
    kernels.penalize[(tile.programs(entries),)](
        *(logits, rows.contiguous(), counts.contiguous(), prompt.contiguous().view(torch.uint8)),
        *(strengths.contiguous(), entries, size, logits.stride(0), tile.blocks),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
