"""How the parts of a weight lie in memory for the kernels: one packing for each format of `native.packed`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from core_plugin_cpu.native import pack_floats, packed
from core_plugin_cpu.native.library import ABI, isa
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.native.rounding import encode
from core_plugin_cpu.products.floats import rounded_float4

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from core.api import Part, WeightForm


class Packing(Protocol):
    """Packs parts of one form. A part that comes in another form is rounded to it.

    Attributes:
        kind: Format that it packs to.
        ordered: Whether inputs are rearranged, each part's in an order of its own.
    """

    kind: Format
    ordered: bool

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Write the packed bytes to `out`, and the order of the inputs, `(inputs,)` int32, if they are rearranged."""
        ...


def layout_of(packings: Sequence[Packing], *further: object) -> str:
    """Return the `Product.layout` of parts that are packed so.

    What packing gives is the same for all instruction sets, as far as anybody knows: they are named because numbers
    that are rounded on the way are computed with them.
    """
    kinds = ",".join(f"{one.kind.name}{'+order' * one.ordered}" for one in packings)
    return " ".join(map(str, ("cpu", ABI, isa(), kinds, *further)))


class Dense:
    """The values in float32 or bfloat16, whatever form they are stored in."""

    ordered = False

    def __init__(self, dtype: torch.dtype) -> None:
        self.kind = Format.F32 if dtype == torch.float32 else Format.BF16
        self._dtype = dtype

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Pack the opened values."""
        packed.pack(part.dense(self._dtype), out)


class Blocks:
    """GGUF blocks as a file stores them."""

    ordered = False

    def __init__(self, kind: Format) -> None:
        self.kind = kind
        self._codes = f"gguf:{kind.name}"

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Rearrange stored blocks. Weights of an update, for instance, come as plain numbers, and are rounded."""
        if part.form.codes == self._codes:
            packed.pack_blocks(part.codes, self.kind, packed.inputs_of(self.kind, part.codes.shape[1]), out)
            return
        values = part.codes if part.form.codes == "plain" else part.dense(torch.float32)

        def some(rows: slice) -> packed.PackedWeight:
            few = values[rows].to(torch.float32).contiguous()
            if self.kind in (Format.MXFP4, Format.NVFP4):
                return pack_floats.pack_float4(*rounded_float4(few, power=self.kind == Format.MXFP4))
            return packed.pack_codes(encode(few, self.kind.name), self.kind, *few.shape)

        packed.pack_rows(self.kind, *values.shape, out, some)


class Int8:
    """Int8 with one scale for each output.

    Args:
        activations: 8 to multiply with activations that are rounded for each token too, 16 to leave them as they are.
    """

    ordered = False

    def __init__(self, form: WeightForm, activations: int) -> None:
        self.kind = Format.W8A8 if activations == 8 else Format.W8A16
        self._form, self._activations = form, activations

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Pack codes and scales."""
        if part.form.codes == "int" and part.scales is not None and part.form.bits == 8:
            codes, scales = part.codes, self._by_output(part.scales.float(), len(part.codes))
        else:
            codes, scales = packed.quantize_int8(part.dense(torch.float32))

        def some(rows: slice) -> packed.PackedWeight:
            return packed.pack_int8(codes[rows].contiguous(), scales[rows], activations=self._activations)

        packed.pack_rows(self.kind, *codes.shape, out, some)

    def _by_output(self, scales: Tensor, outputs: int) -> Tensor:
        """Return one scale for each output, `(outputs, 1)`."""
        each = self._form.outputs or outputs
        return scales.reshape(-1, 1).repeat_interleave(each, dim=0)[:outputs]
