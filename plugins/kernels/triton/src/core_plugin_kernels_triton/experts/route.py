"""Choice of experts in one pass; the form as in `core.ops.experts.route`. Of equal scores the first expert is taken."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from core.api.experts import Routing
from core_plugin_kernels_triton.compat import cast
from core_plugin_kernels_triton.experts.tiles import tiles
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.tiles import power_of_two, warps

SOFTMAX = tl.constexpr(0)
SIGMOID = tl.constexpr(1)
SQRT_SOFTPLUS = tl.constexpr(2)
NOWHERE = tl.constexpr(0x7FFFFFFF)
_SCORES = {"softmax": 0, "sigmoid": 1, "sqrt_softplus": 2}


@triton.jit
def _score(x, top, total, SCORE: tl.constexpr):
    """Return the scores of logits; a softmax has its greatest logit and its sum."""
    if SCORE == SOFTMAX:
        y = tl.exp(x - top) / total
    elif SCORE == SIGMOID:
        y = 1.0 / (1.0 + tl.exp(-x))
    else:
        # log(1 + exp(x)), of which large x are no overflow.
        y = tl.sqrt(tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x))))
    return y


@triton.jit
def _sound(x):
    """Return `x` for comparisons: what is not a number is as large as can be, as in torch's `topk`."""
    return tl.where(x == x, x, float("inf"))


@triton.jit
def _best(values, free, place):
    """Return the place `(ROWS,)` of the first best of `values (ROWS, N)` that are free, and where that is."""
    top = tl.max(tl.where(free, values, float("-inf")), 1)
    found = tl.min(tl.where(free & (values == top[:, None]), place, NOWHERE), 1)
    return found, place == found[:, None]


@triton.jit(do_not_specialize=["tokens"])
def route_kernel(
    logits,
    correction,
    weights,
    ids,
    tokens,
    experts,
    stride,
    eps,
    factor,
    cap,
    TOP_K: tl.constexpr,
    SCORE: tl.constexpr,
    CHOSEN_ONLY: tl.constexpr,
    CORRECTED: tl.constexpr,
    GROUPS: tl.constexpr,
    TOP_GROUPS: tl.constexpr,
    BY_TWO: tl.constexpr,
    RENORMALIZE: tl.constexpr,
    CAPPED: tl.constexpr,
    ROWS: tl.constexpr,
    EXPERTS: tl.constexpr,
    PLACES: tl.constexpr,
):
    """Choose the experts of `ROWS` tokens among `experts <= EXPERTS`; `TOP_K <= PLACES`."""
    token = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    known = token < tokens
    expert = tl.arange(0, EXPERTS)[None, :]
    inside = known[:, None] & (expert < experts)
    real = tl.zeros([ROWS, EXPERTS], tl.int32) + expert < experts
    x = cast(tl.load(logits + token[:, None] * stride + expert, mask=inside, other=0.0), tl.float32)
    if CAPPED:
        shrunk = tl.exp(-2.0 * tl.abs(x / cap))
        size = cap * (1.0 - shrunk) / (1.0 + shrunk)
        x = tl.where(x < 0, -size, size)
    top = tl.max(tl.where(real, x, float("-inf")), 1)
    total = tl.sum(tl.where(real, tl.exp(x - top[:, None]), 0.0), 1)
    choice = x
    if not CHOSEN_ONLY:
        choice = _score(x, top[:, None], total[:, None], SCORE)
    if CORRECTED:
        own = tl.load(correction + tl.arange(0, EXPERTS), mask=tl.arange(0, EXPERTS) < experts, other=0.0)
        choice += cast(own, tl.float32)[None, :]
    choice = _sound(choice)
    if GROUPS > TOP_GROUPS:
        each = experts // GROUPS
        group = expert // each
        worth = tl.zeros([ROWS, EXPERTS], tl.float32)
        for one in range(GROUPS):
            of_it = real & (group == one)
            first, at = _best(choice, of_it, tl.zeros([ROWS, EXPERTS], tl.int32) + expert)
            value = tl.max(tl.where(of_it, choice, float("-inf")), 1)
            if BY_TWO:
                value += tl.max(tl.where(of_it & (at == 0), choice, float("-inf")), 1)
            worth = tl.where(of_it, _sound(value)[:, None], worth)
        # A group stands in all of its experts' lanes.
        chosen = tl.zeros([ROWS, EXPERTS], tl.int32)
        for _ in range(TOP_GROUPS):
            first, at = _best(worth, real & (chosen == 0), tl.zeros([ROWS, EXPERTS], tl.int32) + expert)
            chosen = tl.where(group == (first // each)[:, None], 1, chosen)
        choice = tl.where(chosen != 0, choice, float("-inf"))
    lane = tl.arange(0, PLACES)[None, :]
    picked = tl.zeros([ROWS, PLACES], tl.float32)
    picked_ids = tl.zeros([ROWS, PLACES], tl.int32)
    free = real
    for turn in range(TOP_K):
        found, at = _best(choice, free, tl.zeros([ROWS, EXPERTS], tl.int32) + expert)
        free = free & (at == 0)
        mine = tl.sum(tl.where(at, x, 0.0), 1)
        picked = tl.where(lane == turn, mine[:, None], picked)
        picked_ids = tl.where(lane == turn, found[:, None], picked_ids)
    valid = tl.zeros([ROWS, PLACES], tl.int32) + lane < TOP_K
    if CHOSEN_ONLY:
        top = tl.max(tl.where(valid, picked, float("-inf")), 1)
        total = tl.sum(tl.where(valid, tl.exp(picked - top[:, None]), 0.0), 1)
    share = tl.where(valid, _score(picked, top[:, None], total[:, None], SCORE), 0.0)
    if RENORMALIZE:
        share = share / (tl.sum(share, 1) + eps)[:, None]
    to = token[:, None] * TOP_K + lane
    tl.store(weights + to, share * factor, mask=valid & known[:, None])
    tl.store(ids + to, picked_ids, mask=valid & known[:, None])


def route(logits: Tensor, correction: Tensor | None, routing: Routing) -> tuple[Tensor, Tensor]:
    """Choose experts: `logits (T, E)` -> weights `(T, k)` float32, ids `(T, k)` int32, the best first."""
    weights = torch.empty(logits.shape[0], routing.top_k, dtype=torch.float32, device=logits.device)
    ids = torch.empty(weights.shape, dtype=torch.int32, device=logits.device)
    if len(logits):
        kinds = (_SCORES[routing.score], routing.chosen_only, routing.groups, routing.top_groups)
        rules = [*map(int, kinds), int(routing.group_by == "top2"), int(routing.renormalize)]
        launch_route(logits, correction, weights, ids, rules, [routing.eps, routing.factor, routing.cap])
    return weights, ids


@launch("Tensor logits, Tensor? correction, Tensor(a!) weights, Tensor(b!) ids, int[] rules, float[] numbers")
def launch_route(
    logits: Tensor, correction: Tensor | None, weights: Tensor, ids: Tensor, rules: list[int], numbers: list[float]
) -> None:
    """Write weights and ids, by the fields of a `Routing`."""
    logits = logits if logits.stride(1) == 1 else logits.contiguous()
    (tokens, experts), top_k = logits.shape, ids.shape[1]
    score, chosen_only, groups, top_groups, by_two, renormalize = rules
    eps, factor, cap = numbers
    sizes, width = tiles(logits.device)["route"], power_of_two(experts)
    rows = max(1, sizes["tile"] // width)
    route_kernel[(-(-tokens // rows),)](
        *(logits, correction, weights, ids, tokens, experts, logits.stride(0), eps, factor, cap),
        TOP_K=top_k,
        SCORE=score,
        CHOSEN_ONLY=bool(chosen_only),
        CORRECTED=correction is not None,
        GROUPS=groups,
        TOP_GROUPS=top_groups,
        BY_TWO=bool(by_two),
        RENORMALIZE=bool(renormalize),
        CAPPED=bool(cap),
        ROWS=rows,
        EXPERTS=width,
        PLACES=power_of_two(top_k),
        num_warps=warps(rows * width, sizes["lane"]),
    )
