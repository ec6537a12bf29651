"""Embeddings and output projections of plain weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from core.api import Part, Product
from core_plugin_kernels_triton.launch import launch
from core_plugin_kernels_triton.ops.kernels.embedding import look_up
from core_plugin_kernels_triton.ops.tiles import tiles, tiling


class Lookup(Product):
    """One matrix in the compute dtype: rows by token id, and products with torch's own."""

    def sizes(self) -> Mapping[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return the matrix, and the bias if the layer has one."""
        site, dtype = self.place.site, self.place.dtype
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {"weight": ((site.rows, site.in_features), dtype)}
        return {**sizes, "bias": ((site.rows,), dtype)} if site.bias else sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write the part into its rows."""
        parts = self.place.site.parts
        start = sum(rows for _, rows in parts[:index])
        weight = out["weight"].narrow(0, start, parts[index][1])
        weight.copy_(part.dense(weight.dtype))
        if part.bias is not None:
            out["bias"].narrow(0, start, parts[index][1]).copy_(part.bias)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T + bias`."""
        return functional.linear(x, params["weight"], params.get("bias"))

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows of these token ids."""
        weight = params["weight"]
        out = torch.empty((*ids.shape, weight.shape[1]), dtype=weight.dtype, device=weight.device)
        if out.numel():
            launch_look_up(ids, weight, out)
        return out


@launch("Tensor ids, Tensor weight, Tensor(a!) out")
def launch_look_up(ids: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write the rows to `out`."""
    width = weight.shape[1]
    tile = tiling(width, tiles(weight.device)["embedding"], ids.numel())
    look_up[(tile.programs(ids.numel()),)](
        *(ids.contiguous(), weight, out, ids.numel(), width, weight.stride(0), tile.blocks),
        ROWS=tile.rows,
        BLOCK=tile.block,
        num_warps=tile.warps,
    )
