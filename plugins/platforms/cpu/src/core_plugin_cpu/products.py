"""Products of the native library, by the form of the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.api import Product
from core_plugin_cpu.native import gemm, packed
from core_plugin_cpu.native.packed import Format, PackedWeight, packed_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import Part, ProductPlace


class DenseProduct(Product):
    """Weights of any form, opened to the compute dtype and packed: a linear layer, an embedding, or both in one."""

    def __init__(self, place: ProductPlace, options: Mapping[str, object]) -> None:
        super().__init__(place, options)
        site, self._dtype = place.site, place.dtype
        self._kind = Format.F32 if place.dtype == torch.float32 else Format.BF16
        self._sizes = [packed_bytes(self._kind, rows, site.in_features) for _, rows in site.parts]
        # Steps of bfloat16 are an eighth where logits are about 20: likely tokens would often come out as equals.
        self._result = torch.float32 if site.kind in ("lm_head", "embedding") else place.dtype

    def sizes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return a row of packed bytes, and the bias, which is added in float32."""
        site = self.place.site
        weight = {"weight": ((sum(self._sizes),), torch.uint8)}
        return {**weight, "bias": ((site.rows,), torch.float32)} if site.bias else weight

    def pack(self, part: Part, index: int, out: Mapping[str, Tensor]) -> None:
        """Pack the opened part behind those before it."""
        start, size = sum(self._sizes[:index]), self._sizes[index]
        out["weight"].narrow(0, start, size).copy_(packed.pack(part.dense(self._dtype)).data)
        if part.bias is not None:
            first = sum(rows for _, rows in self.place.site.parts[:index])
            out["bias"].narrow(0, first, len(part.bias)).copy_(part.bias)

    def apply(self, x: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return `x @ weight.T + bias`."""
        return gemm.linear(x, self._weight(params), params.get("bias"), dtype=self._result)

    def look_up(self, ids: Tensor, params: Mapping[str, Tensor]) -> Tensor:
        """Return the rows that the token ids name."""
        return gemm.lookup(self._weight(params), ids, self._dtype)

    def _weight(self, params: Mapping[str, Tensor]) -> PackedWeight:
        site = self.place.site
        return PackedWeight(self._kind, site.rows, site.in_features, params["weight"])
