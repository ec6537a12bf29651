"""Layers that multiply with packed weights.

The parameter `weight` is a row of bytes, packed parts one after another, each in a format of its own. An embedding and
the output projection that is tied to it read the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.api import CheckpointError
from core_plugin_cpu.native import gemm
from core_plugin_cpu.native.packed import PANEL, Format, PackedWeight, packed_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from core.api import LayerSite, ParamBuilder, WeightTensor
    from core_plugin_cpu.forms import Form


@dataclass(frozen=True, slots=True)
class Product:
    """Neighbouring rows of the weight that one product computes: `rows` from `first` on, the bytes from `start` on."""

    kind: Format
    first: int
    rows: int
    start: int
    size: int
    asked: int = 0

    def of(self, weight: Tensor, inputs: int, order: Tensor | None = None) -> PackedWeight:
        """Return this part of the weight's bytes."""
        data = weight.narrow(0, self.start, self.size)
        return PackedWeight(self.kind, self.rows, inputs, data, order, self.asked)


class ProductLayer:
    """Applies a weight of one or several products: a linear layer, an embedding or an output projection.

    Args:
        parts: `(format, rows)` of each part of the weight; neighbours of one format and whole panels are one product.
        asked: As in `PackedWeight`.
    """

    def __init__(
        self,
        site: LayerSite,
        dtype: torch.dtype,
        parts: Sequence[tuple[Format, int]],
        *,
        asked: int = 0,
    ) -> None:
        self._site, self._dtype, self._asked = site, dtype, asked
        # Steps of bfloat16 are an eighth where logits are about 20: likely tokens would often come out as equals.
        self._result = torch.float32 if site.kind == "lm_head" else dtype
        self._sizes = [packed_bytes(kind, rows, site.in_features) for kind, rows in parts]
        self._rows = sum(rows for _, rows in parts)
        self._products, self._apart = list(self._divide(parts)), list(self._divide(parts, joined=False))

    def final_bytes(self) -> int:
        """Return the packed weight's bytes."""
        return sum(self._sizes)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T + bias`; for an embedding the rows that the token ids name, decoded.

        Args:
            params: `weight`, `bias (rows,)` float32 if there is one, `order (1, in)` if inputs are rearranged, or
                `(parts, in)` if those of each part are in another way.
        """
        weight, bias, inputs = params["weight"], params.get("bias"), self._site.in_features
        if self._site.kind == "embedding":
            return gemm.lookup(self._products[0].of(weight, inputs), x, self._dtype)
        orders = params.get("order")
        products = self._products if orders is None or len(orders) == 1 else self._apart
        if len(products) == 1:
            product = products[0].of(weight, inputs, None if orders is None else orders[0])
            return gemm.linear(x, product, bias, dtype=self._result)
        y = torch.empty(x.shape[0], self._rows, dtype=self._result)
        for index, one in enumerate(products):
            part = one.of(weight, inputs, None if orders is None else orders[index if len(orders) > 1 else 0])
            some = None if bias is None else bias.narrow(0, one.first, one.rows)
            gemm.apply(x, part, some, y.narrow(1, one.first, one.rows))
        return y

    def _divide(self, parts: Sequence[tuple[Format, int]], *, joined: bool = True) -> Iterator[Product]:
        """Yield one product for each part, or as few as there can be."""
        firsts, starts = [0, *accumulate(rows for _, rows in parts)], [0, *accumulate(self._sizes)]
        breaks = [not joined or kind != before or rows % PANEL > 0 for (before, rows), (kind, _) in pairwise(parts)]
        numbers = accumulate(map(int, breaks), initial=0)
        for _, run in groupby(zip(numbers, range(len(parts))), key=lambda pair: pair[0]):
            members = [part for _, part in run]
            a, b = members[0], members[-1] + 1
            yield Product(parts[a][0], firsts[a], firsts[b] - firsts[a], starts[a], starts[b] - starts[a], self._asked)


class PackedLayer(ProductLayer):
    """A layer whose weights are packed while they are read: nothing else of them is ever held.

    Args:
        forms: How each part of the site is packed.
        asked: As in `PackedWeight`.
    """

    def __init__(self, site: LayerSite, dtype: torch.dtype, forms: Sequence[Form], *, asked: int = 0) -> None:
        super().__init__(site, dtype, [(form.kind, rows) for form, (_, rows) in zip(forms, site.parts)], asked=asked)
        self._forms = forms

    def declare(self, params: ParamBuilder) -> None:
        """Declare the packed bytes, stacked from the site's parts, and the bias."""
        parts = [(name, size) for (name, _), size in zip(self._site.parts, self._sizes)]
        params.declare("weight", (sum(self._sizes),), torch.uint8, rows=parts)
        declare_bias(self._site, params)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the packed bytes of a part, or the bias, which is added in float32.

        Raises:
            CheckpointError: CORE-M122, the tensor has another shape than the model needs.
        """
        if param == "bias":
            return tensor.dense(torch.float32)
        part = part_of(self._site, tensor.name)
        shape = (self._site.parts[part][1], self._site.in_features)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                "CORE-M122",
                f"the checkpoint tensor '{tensor.name}' has shape {tuple(tensor.shape)}, but the model that its "
                f"configuration describes needs {shape}.",
                hint="The weights and config.json do not belong together.",
            )
        return self._forms[part].pack(tensor).data

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters as they are: they were packed when they were read."""
        return params


def declare_bias(site: LayerSite, params: ParamBuilder) -> None:
    """Declare the bias of a site that has one; the products add it in float32."""
    if site.bias:
        params.declare("bias", (sum(rows for _, rows in site.parts),), torch.float32, rows=site.parts)


def part_of(site: LayerSite, name: str) -> int:
    """Return which of the site's parts the tensor `<module>.<parameter>` fills."""
    module = name.rpartition(".")[0]
    named = [part for part, (known, _) in enumerate(site.parts) if not known or f".{module}".endswith(f".{known}")]
    return named[0] if named else 0
