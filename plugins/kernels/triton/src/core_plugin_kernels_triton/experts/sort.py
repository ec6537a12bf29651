"""The order of rows by expert, found on the device: the host never learns how many rows an expert has.

Pairs of a token and one of its experts are put in order by counting: each program counts the experts of a block of
pairs, then each finds the places of its own. Nothing is added up by programs that race, so the order is always that of
`core.ops.experts.by_expert`: by expert, then by token, then by place; pairs without an expert come last.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

from core_plugin_kernels_triton.experts.tiles import tiles
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two


@triton.jit
def _kinds(ids, first, pairs, experts, STEP: tl.constexpr, EXPERTS: tl.constexpr):
    """Return of `STEP` pairs from `first` on: their numbers, whether they are any, and `(STEP, EXPERTS)` 1 at theirs.

    A pair without an expert is of the kind `experts`.
    """
    pair = first + tl.arange(0, STEP)
    inside = pair < pairs
    expert = tl.load(ids + pair, mask=inside, other=-1)
    kind = tl.where((expert < 0) | (expert >= experts), experts, expert)
    same = inside[:, None] & (kind[:, None] == tl.arange(0, EXPERTS)[None, :])
    return pair, inside, same.to(tl.int32)


@triton.jit(do_not_specialize=["pairs"])
def count_kernel(ids, counts, pairs, experts, BLOCK: tl.constexpr, STEP: tl.constexpr, EXPERTS: tl.constexpr):
    """Write how many pairs of a block each kind has."""
    block = tl.program_id(0)
    found = tl.zeros([EXPERTS], tl.int32)
    for step in range(0, BLOCK, STEP):
        _, _, same = _kinds(ids, block * BLOCK + step, pairs, experts, STEP, EXPERTS)
        found += tl.sum(same, 0)
    tl.store(counts + block * EXPERTS + tl.arange(0, EXPERTS), found)


@triton.jit(do_not_specialize=["pairs", "blocks"])
def place_kernel(
    ids, counts, order, starts, pairs, blocks, experts, BLOCK: tl.constexpr, STEP: tl.constexpr, EXPERTS: tl.constexpr
):
    """Write the pairs of a block to their places; the first program writes where the kinds begin, too."""
    block = tl.program_id(0)
    kind = tl.arange(0, EXPERTS)
    totals = tl.zeros([EXPERTS], tl.int32)
    before = tl.zeros([EXPERTS], tl.int32)
    for other in range(blocks):
        count = tl.load(counts + other * EXPERTS + kind)
        totals += count
        before += tl.where(other < block, count, 0)
    ends = tl.cumsum(totals, 0)
    if block == 0:
        tl.store(starts + kind, ends - totals, mask=kind <= experts)
        tl.store(starts + experts + 1, pairs)
    next_place = ends - totals + before
    for step in range(0, BLOCK, STEP):
        pair, inside, same = _kinds(ids, block * BLOCK + step, pairs, experts, STEP, EXPERTS)
        place = tl.sum(same * (tl.cumsum(same, 0) - same + next_place[None, :]), 1)
        tl.store(order + place, pair, mask=inside)
        next_place += tl.sum(same, 0)


def by_expert(ids: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """Return the order of rows by expert, and where each expert's rows begin.

    Args:
        ids: `(T, k)` int32, contiguous; one that is no expert's stands for none.

    Returns:
        `(T * k,)` int32, numbers of pairs, and `(experts + 2,)` int32: the last but one is where pairs without an
        expert begin, the last is `T * k`.
    """
    pairs, sizes = ids.numel(), tiles(ids.device)["sort"]
    kinds = power_of_two(experts + 1)
    counts = torch.empty(-(-pairs // sizes["block"]), kinds, dtype=torch.int32, device=ids.device)
    order = torch.empty(pairs, dtype=torch.int32, device=ids.device)
    starts = torch.empty(experts + 2, dtype=torch.int32, device=ids.device)
    launch_by_expert(ids, counts, order, starts)
    return order, starts


@launch("Tensor ids, Tensor(a!) counts, Tensor(b!) order, Tensor(c!) starts")
def launch_by_expert(ids: Tensor, counts: Tensor, order: Tensor, starts: Tensor) -> None:
    """Write the order and the starts; there is at least one pair."""
    (blocks, kinds), experts = counts.shape, starts.shape[0] - 2
    sizes = tiles(ids.device)["sort"]
    same = {"BLOCK": sizes["block"], "STEP": step_of(sizes, kinds), "EXPERTS": kinds, "num_warps": 4}
    count_kernel[(blocks,)](ids, counts, ids.numel(), experts, **same)
    place_kernel[(blocks,)](ids, counts, order, starts, ids.numel(), blocks, experts, **same)


def step_of(sizes: Mapping[str, int], kinds: int) -> int:
    """Return how many pairs are compared with all kinds at once."""
    return min(sizes["block"], max(1, sizes["tile"] // kinds))
