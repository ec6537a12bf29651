"""How a weight of a checkpoint is packed for the native products: one form for each way of storing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from core_plugin_cpu.native import packed
from core_plugin_cpu.native.packed import PANEL, Format, PackedWeight, packed_bytes, panel_bytes
from core_plugin_cpu.native.rounding import encode

if TYPE_CHECKING:
    from core.api import WeightTensor


_SOME = 128 * PANEL
"""Rows that are rounded at a time: what is in between takes several times their memory."""


class Form(Protocol):
    """Packs the tensors of one checkpoint weight.

    Attributes:
        kind: Format of what `pack` returns.
    """

    kind: Format

    def pack(self, tensor: WeightTensor) -> PackedWeight: ...


class Dense:
    """The values in float32 or bfloat16, decoded if the checkpoint stores them encoded."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.kind = Format.F32 if dtype == torch.float32 else Format.BF16
        self._dtype = dtype

    def pack(self, tensor: WeightTensor) -> PackedWeight:
        """Pack the decoded values."""
        return packed.pack(tensor.dense(self._dtype))


class Blocks:
    """GGUF blocks as they are stored; whatever comes in another form is rounded to them."""

    def __init__(self, kind: Format) -> None:
        self.kind = kind
        self._encoding = f"gguf:{kind.name}"

    def pack(self, tensor: WeightTensor) -> PackedWeight:
        """Rearrange the stored blocks. Weights of an update, for instance, come as plain numbers."""
        if tensor.encoding == self._encoding:
            return packed.pack_blocks(tensor.raw(), self.kind, tensor.shape[1])
        values = tensor.raw() if tensor.encoding == "plain" else tensor.dense(torch.float32)
        rows, inputs = values.shape
        data = torch.empty(packed_bytes(self.kind, rows, inputs), dtype=torch.uint8)
        for first in range(0, rows, _SOME):
            some = values[first : first + _SOME].to(torch.float32).contiguous()
            part = packed.pack_codes(encode(some, self.kind.name), self.kind, *some.shape)
            start = first // PANEL * panel_bytes(self.kind, inputs)
            data[start : start + part.nbytes] = part.data
        return PackedWeight(self.kind, rows, inputs, data)


class RoundedInt8:
    """Int8 with one scale per output channel, rounded while loading.

    Args:
        activations: 8 to multiply with activations that are rounded too, 16 to leave them as they are.
    """

    def __init__(self, activations: int) -> None:
        self.kind = Format.W8A8 if activations == 8 else Format.W8A16
        self._activations = activations

    def pack(self, tensor: WeightTensor) -> PackedWeight:
        """Round the decoded values."""
        codes, scales = packed.quantize_int8(tensor.dense(torch.float32))
        return packed.pack_int8(codes, scales, activations=self._activations)
