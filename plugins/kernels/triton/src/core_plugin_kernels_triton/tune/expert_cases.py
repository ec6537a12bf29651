"""Timings of mixtures of experts: routing, sorting, products and sums, with experts chosen evenly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from core.api import PLAIN, LayerSite, ProductPlace, WeightForm
from core.api.experts import Routing
from core_plugin_kernels_triton.experts.launches import launch_total
from core_plugin_kernels_triton.experts.products import ExpertsIn, ExpertsOut
from core_plugin_kernels_triton.experts.route import route
from core_plugin_kernels_triton.experts.sort import by_expert
from core_plugin_kernels_triton.experts.stored import StoredExpertsIn, StoredExpertsOut
from core_plugin_kernels_triton.products.cards import card
from core_plugin_kernels_triton.tune.cases import Call, Sizes
from core_plugin_kernels_triton.tune.product_cases import FORMS, SCALED, invented, takes

MOST_BYTES = 1 << 32
"""Of the weights of all experts in 16 bits: of larger layers some of the experts are timed."""


def cases(sizes: Sizes, device: torch.device) -> Mapping[str, Sequence[Call]]:
    """Return kernel of the table -> calls whose time counts; none of a model without experts."""
    if not sizes.experts:
        return {}
    routed = [_Routed(sizes, rows, device) for rows in sizes.rows]
    scaled = SCALED if card(device).scaled else ()
    return {
        "route": [one.routing() for one in routed],
        "sort": [partial(by_expert, one.ids, one.experts) for one in routed],
        "multiply": list(_products(PLAIN, (ExpertsIn, ExpertsOut), sizes, routed, device)),
        "stored": [call for form in FORMS for call in _stored(form, sizes, routed, device)],
        "scaled": [call for form in scaled for call in _stored(form, sizes, routed, device)],
        "total": [one.sum() for one in routed],
    }


class _Routed:
    """The tokens of a step, each with different experts."""

    def __init__(self, sizes: Sizes, rows: int, device: torch.device) -> None:
        self.sizes, self.rows, self.device = sizes, rows, device
        self.experts = _experts(sizes)
        self.ids = torch.rand(rows, self.experts, device=device).argsort(1)[:, : sizes.top_k].int().contiguous()
        self.weights = torch.rand(rows, sizes.top_k, device=device)

    def numbers(self, *shape: int) -> Tensor:
        """Return random activations."""
        return torch.randn(*shape, dtype=getattr(torch, self.sizes.dtype), device=self.device)

    def routing(self) -> Call:
        """Return a choice of experts, of all that there are."""
        logits = torch.randn(self.rows, self.sizes.experts, device=self.device)
        return partial(route, logits, None, Routing(top_k=self.sizes.top_k))

    def sum(self) -> Call:
        """Return the sum over the experts of each token."""
        results, out = self.numbers(self.ids.numel(), self.sizes.hidden), self.numbers(self.rows, self.sizes.hidden)
        return partial(launch_total, results, self.weights, self.ids, out, self.experts)


def _experts(sizes: Sizes) -> int:
    each = 3 * sizes.hidden * sizes.expert_size * 2
    return max(sizes.top_k, min(sizes.experts, MOST_BYTES // each))


def _stored(form: WeightForm, sizes: Sizes, routed: Sequence[_Routed], device: torch.device) -> Iterator[Call]:
    if takes(form, sizes.hidden) and takes(form, sizes.expert_size):
        yield from _products(form, (StoredExpertsIn, StoredExpertsOut), sizes, routed, device)


def _products(
    form: WeightForm, kinds: tuple[Any, Any], sizes: Sizes, routed: Sequence[_Routed], device: torch.device
) -> Iterator[Call]:
    """Yield the products into the experts' size, and back."""
    into = kinds[0](_place(form, ("gate", "up"), sizes.expert_size, sizes.hidden, sizes, device), {})
    back = kinds[1](_place(form, ("down",), sizes.hidden, sizes.expert_size, sizes, device), {})
    into_params, back_params = invented(into, device), invented(back, device)
    for one in routed:
        yield partial(into.apply, one.numbers(one.rows, sizes.hidden), one.ids, into_params)
        inner = one.numbers(one.ids.numel(), sizes.expert_size)
        yield partial(back.apply, inner, one.weights, one.ids, back_params)


def _place(
    form: WeightForm, parts: Sequence[str], rows: int, inputs: int, sizes: Sizes, device: torch.device
) -> ProductPlace:
    experts = _experts(sizes)
    named = [(f"{expert}.{part}", rows) for expert in range(experts) for part in parts]
    site = LayerSite("experts", "tune", inputs, named, experts=experts)
    return ProductPlace(site, (form,) * len(named), device, getattr(torch, sizes.dtype))
