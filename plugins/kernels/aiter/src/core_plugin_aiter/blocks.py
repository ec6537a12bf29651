"""Linear layers of float8 weights in blocks of 128 x 128."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from aiter import gemm_a8w8_blockscale
from torch import Tensor

from core.api import Product
from core_plugin_aiter.formats import MOST, OWN, converted, format_of

if TYPE_CHECKING:
    from core.api import Part, ProductPlace
    from core.api.products import Sizes

BLOCK = 128


class Linear(Product):
    """Parameters: `weight<part> (outputs, inputs)` float8, `scales<part>`, a number for each block; `bias (outputs,)`.

    Parts are multiplied one by one: each has blocks of its own.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        self._format = format_of(place.device)
        self._rows = [rows for _, rows in place.site.parts]

    def sizes(self) -> Sizes:
        """Return codes and scales of each part, and a bias if the layer has one."""
        inputs, sizes = self.place.site.in_features, {}
        for index, rows in enumerate(self._rows):
            sizes[f"weight{index}"] = ((rows, inputs), self._format)
            sizes[f"scales{index}"] = ((-(-rows // BLOCK), -(-inputs // BLOCK)), torch.float32)
        return {**sizes, "bias": ((sum(self._rows),), self.place.dtype)} if self.place.site.bias else sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write codes and scales of the part; plain numbers, of an update, are rounded to blocks."""
        if part.form == self.place.forms[index] and part.scales is not None:
            codes, scales = part.codes.view(OWN), part.scales.float()
        else:
            codes, scales = _rounded(part.dense(torch.float32))
        codes, scales = converted(codes, scales, self._format)
        out[f"weight{index}"].view(torch.uint8).copy_(codes.view(torch.uint8))  # torch copies bytes everywhere
        out[f"scales{index}"].copy_(scales)
        if part.bias is not None:
            out["bias"].narrow(0, sum(self._rows[:index]), len(part.bias)).copy_(part.bias)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """`(tokens, inputs) -> (tokens, outputs)`, bias included."""
        if not x.shape[0]:
            return x.new_empty(0, sum(self._rows))
        runs, most = x.float().reshape(len(x), -1, BLOCK), MOST[self._format]
        largest = runs.abs().amax(-1, keepdim=True)
        scales = torch.where(largest > 0, largest / most, 1.0)
        codes = (runs / scales).clamp(-most, most).to(self._format).flatten(-2)
        parts = [
            gemm_a8w8_blockscale(codes, params[f"weight{one}"], scales[..., 0], params[f"scales{one}"], dtype=x.dtype)
            for one in range(len(self._rows))
        ]
        y = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return y + params["bias"] if "bias" in params else y


def _rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return plain numbers `(outputs, inputs)` as codes, with a scale for each block."""
    outputs, inputs = weight.shape
    rows = -(-outputs // BLOCK)
    blocks = torch.nn.functional.pad(weight, (0, 0, 0, rows * BLOCK - outputs)).view(rows, BLOCK, -1, BLOCK)
    largest = blocks.abs().amax((1, 3), keepdim=True)
    scales = torch.where(largest > 0, largest / MOST[OWN], 1.0)
    return (blocks / scales).to(OWN).view(rows * BLOCK, inputs)[:outputs], scales[:, 0, :, 0]
