"""The weights of one layer, or of all experts of one, as DeepGEMM reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import deep_gemm
import torch
from torch import Tensor

from core.api import Product
from core_plugin_deepgemm.rounding import BLOCK, CODES, round_blocks, to_powers

if TYPE_CHECKING:
    from core.api import Part, ProductPlace
    from core.api.products import Sizes

RECIPE = (1, BLOCK, BLOCK)
"""Sizes of what shares a scale: 1 row and 128 inputs of activations, 128 outputs and 128 inputs of weights."""


class Run(NamedTuple):
    """Outputs that one product gives: their rows of the weight, and of the scales."""

    first: int
    rows: int
    block: int
    blocks: int


class BlockProduct(Product):
    """Weights as they are stored, of one layer or of all experts.

    Parameters: `weight (experts, outputs, inputs)` float8; `scales (experts, blocks of outputs, blocks of inputs)`
    float32, on Blackwell packed by the library once all parts are there; `bias (experts, outputs)` in the compute
    dtype. A layer without experts has one.

    Attributes:
        powers: Scales are powers of two: what Blackwell multiplies with.
    """

    def __init__(self, place: ProductPlace, options: Mapping[str, Any]) -> None:
        super().__init__(place, options)
        site = place.site
        self._experts = max(1, site.experts)
        self._parts = [rows for _, rows in site.parts[: len(site.parts) // self._experts]]
        self._outputs, self._inputs = sum(self._parts), site.in_features
        self._runs = runs_of(self._parts)
        self._powers = needs_powers(place.device)

    def sizes(self) -> Sizes:
        """Return codes and scales, and a bias if the layer has one."""
        experts, blocks = self._experts, sum(_blocks(rows) for rows in self._parts)
        sizes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "weight": ((experts, self._outputs, self._inputs), CODES),
            "scales": ((experts, blocks, _blocks(self._inputs)), torch.float32),
        }
        if self.place.site.bias:
            sizes["bias"] = ((experts, self._outputs), self.place.dtype)
        return sizes

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Write codes and scales of the part; plain numbers, of an update, are rounded to blocks."""
        expert, place = divmod(index, len(self._parts))
        rows, first = self._parts[place], sum(self._parts[:place])
        block = sum(_blocks(one) for one in self._parts[:place])
        if part.form == self.place.forms[index] and part.scales is not None:
            codes, scales = part.codes.view(CODES), part.scales.float()
            codes, scales = to_powers(codes, scales) if self._powers else (codes, scales)
        else:
            codes, scales = round_blocks(part.dense(torch.float32), powers=self._powers)
        # Bytes are copied everywhere, float8 not.
        out["weight"][expert].narrow(0, first, rows).view(torch.uint8).copy_(codes.view(torch.uint8))
        out["scales"][expert].narrow(0, block, _blocks(rows)).copy_(scales)
        if part.bias is not None:
            out["bias"][expert].narrow(0, first, rows).copy_(part.bias)

    def finish(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters, with scales as the card's products read them, one tensor for each run."""
        scales, rest = params["scales"], {name: one for name, one in params.items() if name != "scales"}
        return rest | {
            f"scales{number}": self._laid_out(scales.narrow(1, run.block, run.blocks), run.rows)
            for number, run in enumerate(self._runs)
        }

    def _laid_out(self, scales: Tensor, rows: int) -> Tensor:
        if not self._powers:
            return scales.contiguous()
        found: Tensor = deep_gemm.transform_sf_into_required_layout(
            sf=scales.contiguous(), mn=rows, k=self._inputs, recipe=RECIPE, num_groups=self._experts, is_sfa=False
        )
        return found

    def _weights(self, params: Mapping[str, Tensor]) -> Iterator[tuple[Run, Tensor, Tensor]]:
        """Yield each run with its codes `(experts, rows, inputs)` and its scales."""
        for number, run in enumerate(self._runs):
            yield run, params["weight"].narrow(1, run.first, run.rows), params[f"scales{number}"]


def runs_of(parts: list[int]) -> list[Run]:
    """Return what may be multiplied at once: all parts, if each begins where a block begins; else each alone."""
    if all(rows % BLOCK == 0 for rows in parts[:-1]):
        return [Run(0, sum(parts), 0, sum(_blocks(rows) for rows in parts))]
    found, first, block = [], 0, 0
    for rows in parts:
        found.append(Run(first, rows, block, _blocks(rows)))
        first, block = first + rows, block + _blocks(rows)
    return found


def needs_powers(device: torch.device) -> bool:
    """Whether a device multiplies with scales that are powers of two alone."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 10


def _blocks(size: int) -> int:
    return -(-size // BLOCK)
