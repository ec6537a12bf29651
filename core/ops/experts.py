"""Mixtures of experts in plain torch: routing, and products of each token with its own experts' weights.

Shapes: T tokens, k experts of each, E experts. Rows *by expert*: the T * k pairs of a token and one of its experts,
ordered by expert, then by token, then by place among the token's experts; those without one (an id that is no
expert's) come last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import softplus

from core.ops.products import ReferenceProduct

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.experts import Routing
    from core.api.products import ProductPlace


def route(logits: Tensor, correction: Tensor | None, routing: Routing) -> tuple[Tensor, Tensor]:
    """Choose experts: `logits (T, E)` float32 -> weights `(T, k)` float32, ids `(T, k)` int32, the best first.

    Args:
        correction: `(E,)` float32, where `routing` has one.
    """
    ids = preference(logits, correction, routing).topk(routing.top_k, dim=-1).indices
    return weights_of(logits, ids, routing), ids.int()


def preference(logits: Tensor, correction: Tensor | None, routing: Routing) -> Tensor:
    """Return by what experts are chosen, `(T, E)` float32: those with the largest values are."""
    logits = _capped(logits, routing)
    choice = logits if routing.chosen_only else _scores(logits, routing)
    if correction is not None:
        choice = choice + correction.float()
    if routing.groups > routing.top_groups:
        choice = choice.masked_fill(~_of_best_groups(choice, routing), -torch.inf)
    return choice


def weights_of(logits: Tensor, ids: Tensor, routing: Routing) -> Tensor:
    """Return the weights of chosen experts, `ids (T, k)` int64 -> `(T, k)` float32."""
    logits = _capped(logits, routing)
    if routing.chosen_only:
        weights = _scores(logits.gather(-1, ids), routing)
    else:
        weights = _scores(logits, routing).gather(-1, ids)
    if routing.renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + routing.eps)
    return weights * routing.factor


def _capped(logits: Tensor, routing: Routing) -> Tensor:
    logits = logits.float()
    return logits.div(routing.cap).tanh() * routing.cap if routing.cap else logits


def _scores(logits: Tensor, routing: Routing) -> Tensor:
    if routing.score == "sqrt_softplus":
        return softplus(logits).sqrt()
    return logits.softmax(-1) if routing.score == "softmax" else logits.sigmoid()


def _of_best_groups(choice: Tensor, routing: Routing) -> Tensor:
    """Return which experts `(T, E)` are of the groups that are chosen."""
    groups = choice.view(len(choice), routing.groups, choice.shape[-1] // routing.groups)
    best = groups.amax(-1) if routing.group_by == "max" else groups.topk(2, dim=-1).values.sum(-1)
    chosen = torch.zeros_like(best, dtype=torch.bool).scatter_(1, best.topk(routing.top_groups, dim=-1).indices, True)
    return chosen.unsqueeze(-1).expand_as(groups).flatten(1)


def add_identities(out: Tensor, x: Tensor, weights: Tensor, ids: Tensor, experts: int) -> Tensor:
    """Return `out` and what identities make of `x`, both `(T, D)`: `x` times the weights of ids from `experts` on.

    Args:
        weights, ids: `(T, k)` float32 and int32.
    """
    share = weights.masked_fill(ids < experts, 0.0).sum(-1, keepdim=True)
    return out + (x.float() * share).to(x.dtype)


def by_expert(ids: Tensor, experts: int) -> tuple[Tensor, list[int]]:
    """Return the order of rows by expert, as places in `ids` flattened, `(T * k,)` int64; and how many each has."""
    flat = torch.where(ids < 0, experts, ids).flatten()
    return flat.argsort(stable=True), flat.bincount(minlength=experts)[:experts].tolist()


class _EachExpert(ReferenceProduct):
    """Weights of all experts, one after another; each multiplies as a layer of its own would."""

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        site = place.site
        self._parts = len(site.parts) // site.experts
        parts, forms = site.parts[: self._parts], place.forms
        self._rows = sum(rows for _, rows in parts)
        self._each = [
            ReferenceProduct(
                replace(
                    place,
                    site=replace(site, parts=parts, experts=0),
                    forms=forms[first : first + self._parts],
                ),
                options,
            )
            for first in range(0, len(site.parts), self._parts)
        ]

    def _products(self, rows: Tensor, counts: list[int], params: Mapping[str, Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Yield where each expert's rows begin, and their product; experts without rows are left out."""
        begin = 0
        for expert, count in enumerate(counts):
            if count:
                yield begin, self._each[expert].apply(rows[begin : begin + count], self._of(expert, params))
            begin += count

    def _of(self, expert: int, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return one expert's parameters."""
        found = {
            name: params[name].narrow(0, expert * self._rows, self._rows)
            for name in ("weight", "bias")
            if name in params
        }
        if "input_scales" in params:
            found["input_scales"] = params["input_scales"].narrow(0, expert * self._parts, self._parts)
        return found


class ReferenceExpertsIn(_EachExpert):
    """The product that reads hidden states: each token's row meets the weights of all of its experts."""

    def apply(self, x: Tensor, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:  # type: ignore[override]
        """`x (T, inputs)`, `ids (T, k)` -> `(T * k, outputs of one expert)`, by expert; zeros without one."""
        order, counts = by_expert(ids, len(self._each))
        out = x.new_zeros(len(order), self._rows)
        for begin, product in self._products(x[order // ids.shape[1]], counts, params):
            out[begin : begin + len(product)] = product
        return out


class ReferenceExpertsOut(_EachExpert):
    """The product whose results are weighed and summed up for each token."""

    def apply(  # type: ignore[override]
        self, x: Tensor, weights: Tensor, ids: Tensor, params: Mapping[str, Tensor]
    ) -> Tensor:
        """`x (T * k, inputs)` by expert, `weights (T, k)` float32, `ids (T, k)` -> `(T, outputs of one expert)`."""
        order, counts = by_expert(ids, len(self._each))
        results = x.new_zeros(len(order), self._rows, dtype=torch.float32)
        for begin, product in self._products(x, counts, params):
            results[order[begin : begin + len(product)]] = product.float()
        weighed = results.view(*ids.shape, self._rows) * weights.unsqueeze(-1)
        # One after another: a sum in another order is another number.
        total = weighed[:, 0]
        for place in range(1, ids.shape[1]):
            total = total + weighed[:, place]
        return total.to(x.dtype)
