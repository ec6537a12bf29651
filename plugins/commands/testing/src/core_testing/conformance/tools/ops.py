"""Arguments for core's operations: what the kit needs to know of each of them to hold kernels to its reference form.

An operation of `core.ops.registry` that has no entry in `SHAPES` cannot be checked; add one here together with it.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from core.api.experts import Routing
from core.api.rotary import RopeConfig
from core.ops.experts import preference, weights_of
from core.ops.rotary import rotary_table
from core_testing.conformance.tools.choosing import CHOOSING
from core_testing.conformance.tools.recurrences import RECURRENCES
from core_testing.conformance.tools.shapes import Make, Maker, Named, OpShape, Settle, Sizes

_POSITIONS = 4096


_WIDTHS = (1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 128, 129, 256, 300, 576, 1000, 1024, 1536, 4096)
"""With and without a rest behind the last full vector, of whatever width."""


def _rms_norm(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    heads = (sizes["heads"],) if sizes["heads"] else ()
    return make.activations(sizes["rows"], *heads, sizes["size"]), make.weights(sizes["size"]), 1e-5


def _add_rms_norm(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    x, residual = (make.activations(sizes["rows"], sizes["size"]) for _ in range(2))
    return x, residual, make.weights(sizes["size"]), 1e-5


def _layer_norm(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    return make.activations(sizes["rows"], sizes["size"]), *_norm_parameters(make, sizes)


def _add_layer_norm(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    x, residual = (make.activations(sizes["rows"], sizes["size"]) for _ in range(2))
    return x, residual, *_norm_parameters(make, sizes)


def _norm_parameters(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    size = sizes["size"]
    return make.weights(size), make.weights(size) if sizes["biased"] else None, 1e-5


def _plain(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    return (make.activations(sizes["rows"], sizes["width"]),)


def _settle_gelu(arguments: Sequence[Any], found: list[Tensor], due: list[Tensor]) -> list[Tensor]:
    """Of infinity torch makes infinity or NaN, as its vectors fall."""
    free = (arguments[0] == float("inf")) & (found[0].isnan() | (found[0] == float("inf")))
    return [torch.where(free, due[0].to(found[0].dtype), found[0])]


def _gated(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    return (make.activations(sizes["rows"], 2 * sizes["width"]),)


def _rotary(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    rows, head_dim = sizes["rows"], sizes["head_dim"]
    config = RopeConfig(
        head_dim=head_dim, rotary_dim=sizes["rotary_dim"], theta=10000.0, max_positions=_POSITIONS, scaling={}
    )
    q, k = (make.activations(rows, sizes[name], head_dim) for name in ("heads", "kv_heads"))
    return make.indices(rows, _POSITIONS), q, k, rotary_table(config, _POSITIONS).to(make.dtype)


_ROUTINGS = (
    Routing(top_k=2),
    Routing(top_k=2, renormalize=True, factor=2.5),
    Routing(top_k=2, chosen_only=True),
    Routing(top_k=2, score="sigmoid", correction=True, renormalize=True, eps=1e-20, factor=2.5),
    Routing(top_k=2, score="sigmoid", correction=True, groups=2, top_groups=1, group_by="top2"),
    Routing(top_k=2, groups=4, top_groups=2),
    Routing(top_k=2, cap=1.5),
    Routing(top_k=2, score="sqrt_softplus", correction=True, renormalize=True, eps=1e-20, factor=1.5),
)
_TIE = 1e-5
"""Difference of two experts' scores that computing them otherwise may make."""


def _route(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    routing = _ROUTINGS[sizes["rule"]].replace(top_k=sizes["top_k"])
    logits = make.values(torch.randn(sizes["rows"], sizes["experts"], generator=make.rng) * 2)
    correction = torch.randn(sizes["experts"], generator=make.rng) * 0.2 if routing.correction else None
    return logits, correction, routing


def _routable(sizes: Sizes) -> bool:
    """Whether the experts are whole groups, of which those that are chosen have enough, and at least two each."""
    routing, experts = _ROUTINGS[sizes["rule"]], sizes["experts"]
    each = experts // routing.groups
    return experts % routing.groups == 0 and sizes["top_k"] <= each * routing.top_groups and each >= 2


def _settle_route(arguments: Sequence[Any], found: list[Tensor], due: list[Tensor]) -> list[Tensor]:
    """Let experts come in any order, and one stand for another whose score is equal."""
    logits, correction, routing = arguments
    weights, ids = found
    if ids.shape != due[1].shape or ids.numel() == 0 or bool(((ids < 0) | (ids >= logits.shape[1])).any()):
        return found
    chosen = preference(logits, correction, routing)
    worst, least = chosen.gather(1, ids.long()).amin(-1), chosen.gather(1, due[1].long()).amin(-1)
    distinct = (ids.sort(-1).values.diff(dim=-1) > 0).all(-1)
    right = (weights - weights_of(logits, ids.long(), routing)).abs().amax(-1) < _TIE * routing.factor
    # Of groups with equal scores each may be chosen: their experts then have no value in `chosen`.
    tied = routing.groups > routing.top_groups and _groups_tie(logits, correction, routing)
    good = (distinct & right & ((worst >= least - _TIE) | tied)) | ~logits.isfinite().all(-1)
    return [torch.where(good[:, None], one, other) for one, other in zip(due, found)]


def _groups_tie(logits: Tensor, correction: Tensor | None, routing: Routing) -> Tensor:
    """Return for each token whether the last group that is chosen and the first that is not have equal scores."""
    all_groups = routing.replace(groups=1, top_groups=1)
    chosen_by = preference(logits, correction, all_groups)
    groups = chosen_by.view(len(chosen_by), routing.groups, chosen_by.shape[1] // routing.groups)
    worth = groups.amax(-1) if routing.group_by == "max" else groups.topk(2, dim=-1).values.sum(-1)
    best = worth.sort(-1, descending=True).values
    tied: Tensor = best[:, routing.top_groups - 1] - best[:, routing.top_groups] < 2 * _TIE
    return tied


_ROUTE = OpShape(
    {"experts": (4, 5, 8, 60, 64, 128), "top_k": (1, 2, 3, 8), "rule": tuple(range(len(_ROUTINGS)))},
    _route,
    (0,),
    {"rows": 512, "experts": 128, "top_k": 8, "rule": 0},
    fits=_routable,
    settle=_settle_route,
)


def _add_identities(make: Maker, sizes: Sizes) -> tuple[Any, ...]:
    rows, top_k, experts = sizes["rows"], sizes["top_k"], sizes["experts"]
    out, x = (make.activations(rows, sizes["width"]) for _ in range(2))
    # Half as many identities as experts.
    ids = make.indices(rows * top_k, experts + (experts + 1) // 2).int().view(rows, top_k)
    return out, x, torch.rand(rows, top_k, generator=make.rng), ids, experts


_ADD_IDENTITIES = OpShape(
    {"width": _WIDTHS, "top_k": (1, 3, 12), "experts": (1, 8)},
    _add_identities,
    (0, 1),
    {"rows": 512, "width": 2048, "top_k": 12, "experts": 512},
    part=lambda arguments, begin, end: [*(one[begin:end].clone() for one in arguments[:4]), arguments[4]],
)
_NORM = OpShape({"size": _WIDTHS, "heads": (0, 1, 3, 8)}, _rms_norm, (0,), {"rows": 512, "size": 2048, "heads": 0})
_ADD_NORM = OpShape({"size": _WIDTHS}, _add_rms_norm, (0, 1), {"rows": 512, "size": 2048})
_LAYER_NORM = OpShape({"size": _WIDTHS, "biased": (0, 1)}, _layer_norm, (0,), {"rows": 512, "size": 2048, "biased": 1})
_ADD_LAYER_NORM = OpShape(
    {"size": _WIDTHS, "biased": (0, 1)}, _add_layer_norm, (0, 1), {"rows": 512, "size": 2048, "biased": 1}
)
_PLAIN = OpShape({"width": _WIDTHS}, _plain, (0,), {"rows": 512, "width": 4096}, settle=_settle_gelu)
_GATED = OpShape({"width": _WIDTHS}, _gated, (0,), {"rows": 256, "width": 4096})
_ROTARY = OpShape(
    {"heads": (1, 3, 4, 9), "kv_heads": (1, 2, 3), "head_dim": (2, 8, 24, 64, 80, 128), "rotary_dim": (2, 8, 20, 64)},
    _rotary,
    (0, 1, 2),
    {"rows": 512, "heads": 32, "kv_heads": 8, "head_dim": 128, "rotary_dim": 128},
    lambda sizes: sizes["rotary_dim"] <= sizes["head_dim"],
)
__all__ = ["SHAPES", "Make", "Maker", "Named", "OpShape", "Settle", "Sizes"]

SHAPES: Mapping[str, OpShape] = types.MappingProxyType(
    {
        "rms_norm": _NORM,
        "add_rms_norm": _ADD_NORM,
        "layer_norm": _LAYER_NORM,
        "add_layer_norm": _ADD_LAYER_NORM,
        "gelu": _PLAIN,
        "gelu_tanh": _PLAIN,
        "silu_and_mul": _GATED,
        "gelu_and_mul": _GATED,
        "gelu_tanh_and_mul": _GATED,
        "rotary": _ROTARY,
        "rotary_interleaved": _ROTARY,
        "route": _ROUTE,
        "add_identities": _ADD_IDENTITIES,
        **RECURRENCES,
        **CHOOSING,
    }
)
"""Operation -> how its arguments are made."""
