"""Products with the weights of all experts of a layer, opened to the compute dtype."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from core.api import Part, Product
from core_plugin_kernels_triton.experts.launches import launch_multiply, launch_total
from core_plugin_kernels_triton.experts.sort import by_expert


class Opened(Product):
    """Weights of all experts, opened: `weight (experts, rows of one, inputs)`, and `bias (experts, rows of one)`."""

    def sizes(self) -> Mapping[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the weights, and the biases if the layer has some."""
        site, dtype = self.place.site, self.place.dtype
        rows = site.rows // site.experts
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "weight": ((site.experts, rows, site.in_features), dtype)
        }
        return {**sizes, "bias": ((site.experts, rows), dtype)} if site.bias else sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Open one matrix of an expert into its rows."""
        site = self.place.site
        each = len(site.parts) // site.experts
        expert, place = divmod(index, each)
        begin, rows = sum(size for _, size in site.parts[:place]), site.parts[place][1]
        weight = out["weight"][expert].narrow(0, begin, rows)
        weight.copy_(part.dense(weight.dtype))
        if part.bias is not None:
            out["bias"][expert].narrow(0, begin, rows).copy_(part.bias)

    def _multiply(self, x: Tensor, ids: Tensor, params: Mapping[str, Tensor], *, into: bool) -> Tensor:
        """Return the products of all pairs: by expert where hidden states come in, else by token."""
        weight = params["weight"]
        out = x.new_empty(ids.numel(), weight.shape[1])
        if out.numel():
            order, starts = by_expert(ids, weight.shape[0])
            x = x if x.stride(-1) == 1 else x.contiguous()
            launch_multiply(x, weight, params.get("bias"), order, starts, out, ids.shape[1], into)
        return out


class ExpertsIn(Opened):
    """The product that reads hidden states: each token's row meets the weights of all of its experts."""

    def apply(self, x: Tensor, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:  # type: ignore[override]
        """`x (T, inputs)`, `ids (T, k)` int32 -> `(T * k, outputs of one expert)`, by expert; zeros without one."""
        return self._multiply(x, ids.contiguous(), params, into=True)


class ExpertsOut(Opened):
    """The product whose results are weighed and summed up for each token."""

    def apply(  # type: ignore[override]
        self, x: Tensor, weights: Tensor, ids: Tensor, params: Mapping[str, Tensor]
    ) -> Tensor:
        """`x (T * k, inputs)` by expert, `weights (T, k)`, `ids (T, k)` int32 -> `(T, outputs of one expert)`."""
        ids = ids.contiguous()
        results = self._multiply(x, ids, params, into=False)
        out = x.new_empty(ids.shape[0], results.shape[1])
        if out.numel():
            launch_total(results, weights.contiguous(), ids, out, self.place.site.experts)
        return out
