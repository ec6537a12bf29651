"""Linear layers of int8 weights with a scale for each output, activations rounded for each token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from aiter import gemm_a8w8_CK
from torch import Tensor

from core.api import Product

if TYPE_CHECKING:
    from core.api import Part
    from core.api.products import Sizes

MOST = 127.0


class Linear(Product):
    """Parameters: `weight (outputs, inputs)` int8; `scales (outputs, 1)` float32; `bias (outputs,)`."""

    def sizes(self) -> Sizes:
        """Return codes and scales, and a bias if the layer has one."""
        site = self.place.site
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "weight": ((site.rows, site.in_features), torch.int8),
            "scales": ((site.rows, 1), torch.float32),
        }
        return {**sizes, "bias": ((site.rows,), self.place.dtype)} if site.bias else sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write codes and scales of the part; plain numbers, of an update, are rounded row by row."""
        first = sum(rows for _, rows in self.place.site.parts[:index])
        rows = self.place.site.parts[index][1]
        if part.form == self.place.forms[index] and part.scales is not None:
            codes, scales = part.codes, part.scales.float()
        else:
            codes, scales = _rounded(part.dense(torch.float32))
        out["weight"].narrow(0, first, rows).copy_(codes)
        out["scales"].narrow(0, first, rows).copy_(scales)
        if part.bias is not None:
            out["bias"].narrow(0, first, rows).copy_(part.bias)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """`(tokens, inputs) -> (tokens, outputs)`, bias included."""
        if not x.shape[0]:
            return x.new_empty(0, self.place.site.rows)
        codes, scales = _rounded(x.float())
        y: Tensor = gemm_a8w8_CK(codes, params["weight"], scales, params["scales"], None, x.dtype)
        return y + params["bias"] if "bias" in params else y


def _rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes and the scale of each row."""
    largest = x.abs().amax(-1, keepdim=True)
    scales = torch.where(largest > 0, largest / MOST, 1.0)
    return (x / scales).round().clamp(-MOST, MOST).to(torch.int8), scales
