"""Four-bit codes with a scale, and perhaps a zero point, for each group of inputs: what AWQ and GPTQ store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from core.api import CheckpointError
from core_plugin_cpu.native import packed
from core_plugin_cpu.native.packed import MIDDLE, Format

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import Part, WeightForm


class Codes(NamedTuple):
    """`(code - zero) * scale`: codes `(outputs, inputs)` 0 to 15; scales and zeros `(outputs, groups)`.

    Without zeros it is the middle of the codes everywhere, which need not be stored.
    """

    codes: Tensor
    scales: Tensor
    zeros: Tensor | None


class Groups:
    """Groups of whole blocks of 32 inputs, in any order if the form says so."""

    def __init__(self, form: WeightForm, inputs: int) -> None:
        self._form, self._size = form, form.inputs or inputs
        self.kind = packed.group_format(self._size) if form.zeros else Format.Q4_0
        self.ordered = form.ordered

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Rearrange the codes, group after group.

        Raises:
            CheckpointError: CORE-M180, inputs are not divided into groups of equal sizes.
        """
        codes, scales, zeros = self._codes_of(part)
        columns = self._columns(part, codes.shape[1])
        if order is not None:
            order.copy_(columns)

        def some(rows: slice) -> packed.PackedWeight:
            few = codes[rows] if order is None else codes[rows][:, columns]
            few = few if self._form.zeros else few + MIDDLE
            minima = None if zeros is None else -zeros[rows].float() * scales[rows]
            return packed.pack_groups(few.to(torch.uint8).contiguous(), scales[rows], minima)

        packed.pack_rows(self.kind, *codes.shape, out, some)

    def _codes_of(self, part: Part) -> Codes:
        if part.form == self._form and part.scales is not None:
            return Codes(part.codes, part.scales.float(), part.zeros)
        return rounded(part.dense(torch.float32), self._size, zeros=self._form.zeros)

    def _columns(self, part: Part, inputs: int) -> Tensor:
        """Return the inputs in the order of their groups."""
        natural = torch.arange(inputs)
        if part.group_of is None:
            return natural
        columns = part.group_of.argsort(stable=True)
        if not torch.equal(part.group_of[columns], natural // self._size):
            raise CheckpointError(
                "CORE-M180",
                f"a weight of {inputs} inputs in groups of {self._size} has groups of other sizes.",
                hint="The weights and the checkpoint's quantization_config do not belong together.",
            )
        return columns


def rounded(values: Tensor, size: int, *, zeros: bool) -> Codes:
    """Return plain numbers `(outputs, inputs)` float32 as codes, by the extremes of each group."""
    groups = values.unflatten(1, (-1, size))
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    if not zeros:
        scales = _positive(torch.maximum(-low / MIDDLE, high / (MIDDLE - 1)))
        codes = torch.round(groups / scales.unsqueeze(-1)).clamp(-MIDDLE, MIDDLE - 1)
        return Codes(codes.flatten(1).to(torch.int8), scales, None)
    scales = _positive((high - low) / 15)
    zero = torch.round(-low / scales)
    codes = (torch.round(groups / scales.unsqueeze(-1)) + zero.unsqueeze(-1)).clamp(0, 15)
    return Codes(codes.flatten(1).to(torch.uint8), scales, zero)


def _positive(scales: Tensor) -> Tensor:
    return torch.where(scales > 0, scales, 1.0)
