"""Layers of 2- to 8-bit codes with a scale and a zero point for each group of inputs: what AWQ and GPTQ store.

Four-bit codes in groups of whole blocks of 32 are multiplied as they are, others are decoded to the compute dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from core.api import CheckpointError
from core_plugin_cpu.native import packed
from core_plugin_cpu.native.packed import Format, PackedWeight
from core_plugin_cpu.packed_layers import ProductLayer, declare_bias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core.api import LayerSite, ParamBuilder, WeightTensor


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the weights of a checkpoint are stored.

    Attributes:
        size: Inputs of a group; -1 for all of them.
        indexed: Whether a tensor `g_idx` tells the group of each input.
        ordered: Whether it may do so in any order.
        symmetric: Whether every zero point is the middle of the codes, 8 of 16.
    """

    bits: int
    size: int
    indexed: bool = False
    ordered: bool = False
    symmetric: bool = False

    def groups(self, inputs: int) -> int:
        """Return how many groups so many inputs make."""
        return 1 if self.size == -1 else -(-inputs // self.size)

    def format(self, inputs: int, dtype: torch.dtype) -> Format:
        """Return the format to multiply with."""
        size = inputs if self.size == -1 else self.size
        if self.bits == 4 and inputs % size == 0 and size % 32 == 0:
            kind = packed.group_format(size)
            return Format.Q4_0 if self.symmetric and kind is Format.Q4_1 else kind  # no minimum to store
        return Format.F32 if dtype == torch.float32 else Format.BF16


class GroupedLayer(ProductLayer):
    """A linear layer. Subclasses read the checkpoint's tensors.

    Parameters as filled: `qweight (rows, in)` codes, two to a byte if they have four bits; `qzeros` and `scales (rows,
    groups)`; `g_idx (parts, in)` if indexed; `bias`.
    """

    def __init__(self, site: LayerSite, dtype: torch.dtype, grouping: Grouping, *, asked: int = 0) -> None:
        self._kind = grouping.format(site.in_features, dtype)
        self._grouping = grouping
        self._reorders = grouping.ordered and self._kind not in (Format.F32, Format.BF16)
        parts = [(self._kind, rows) for _, rows in site.parts]
        super().__init__(site, dtype, parts, asked=asked)

    def declare(self, params: ParamBuilder) -> None:
        """Declare what the checkpoint holds, outputs first, so that parts can be stacked."""
        parts, inputs = self._site.parts, self._site.in_features
        groups, codes = self._grouping.groups(inputs), inputs // 2 if self._grouping.bits == 4 else inputs
        params.declare("qweight", (self._rows, codes), torch.uint8, rows=parts)
        params.declare("qzeros", (self._rows, groups), torch.int16, rows=parts)
        params.declare("scales", (self._rows, groups), torch.float32, rows=parts)
        if self._grouping.indexed:
            params.declare("g_idx", (len(parts), inputs), torch.int32, rows=[(name, 1) for name, _ in parts])
        declare_bias(self._site, params)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the parameter's part."""
        if param == "qweight":
            codes = self.codes(tensor.raw())
            return codes[:, ::2] | (codes[:, 1::2] << 4) if self._grouping.bits == 4 else codes
        if param == "qzeros":
            return self.zeros(tensor.raw())
        if param == "g_idx":
            return tensor.raw().view(1, -1)
        values = tensor.dense(torch.float32)
        return values.t() if param == "scales" else values

    def codes(self, words: Tensor) -> Tensor:
        """Return the codes of a stored `qweight`: `(rows, in)` uint8."""
        raise NotImplementedError

    def zeros(self, words: Tensor) -> Tensor:
        """Return the zero points of a stored `qzeros`: `(rows, groups)` int16."""
        raise NotImplementedError

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pack part after part."""
        parts, first = [], 0
        for index, (name, rows) in enumerate(self._site.parts):
            mine = {key: params[key].narrow(0, first, rows) for key in ("qweight", "qzeros", "scales")}
            group = params["g_idx"][index].long() if self._grouping.indexed else self._plain_groups()
            parts.append(self._pack(name, mine, group))
            first += rows
        final = {"weight": torch.cat([part.data for part in parts])}
        orders = [part.order for part in parts if part.order is not None]
        if orders:
            # Inputs are ordered by what the layer is fed: commonly all parts have one order, and are one product.
            same = all(torch.equal(orders[0], order) for order in orders)
            final["order"] = torch.stack(orders[:1] if same else orders)
        return final | {name: value for name, value in params.items() if name == "bias"}

    def _pack(self, part: str, params: Mapping[str, Tensor], group: Tensor) -> PackedWeight:
        codes, zeros, scales = params["qweight"], params["qzeros"], params["scales"]
        if self._grouping.bits == 4:
            codes = torch.stack((codes & 15, codes >> 4), dim=-1).flatten(1)
        if self._kind in (Format.F32, Format.BF16):
            return packed.pack(((codes.float() - zeros[:, group]) * scales[:, group]).to(self._dtype))
        order = group.argsort(stable=True)
        if not torch.equal(group[order], self._plain_groups()) or not (self._reorders or _rising(group)):
            raise self._contradicted(part, "the groups that g_idx tells")
        codes = codes[:, order] if self._reorders else codes
        if self._kind is Format.Q4_0 and not bool((zeros == packed.MIDDLE).all()):
            raise self._contradicted(part, "the zero points, which differ,")
        minima = None if self._kind is Format.Q4_0 else -zeros * scales
        return packed.pack_groups(codes, scales, minima, order=order if self._reorders else None)

    def _contradicted(self, part: str, what: str) -> CheckpointError:
        return CheckpointError(
            "CORE-M160",
            f"in '{self._site.prefix}{'.' * bool(part)}{part}' {what} are not those of its quantization_config.",
            hint="The weights and config.json do not belong together.",
        )

    def _plain_groups(self) -> Tensor:
        inputs = self._site.in_features
        return torch.arange(inputs) // (inputs if self._grouping.size == -1 else self._grouping.size)


def _rising(group: Tensor) -> bool:
    return bool((group.diff() >= 0).all())
