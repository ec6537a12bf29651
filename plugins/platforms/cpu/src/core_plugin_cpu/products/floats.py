"""Float8 codes (e4m3) with scales in any blocks whose inputs are whole blocks of 32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api import CheckpointError
from core_plugin_cpu.native import packed
from core_plugin_cpu.native.packed import Format

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import Part, WeightForm

LARGEST = 448.0
"""The largest number in e4m3."""

NO_EXPONENT = 127
"""What e8m0 exponents are counted from."""


class Float8:
    """One byte a weight. The kernels leave activations as they are, whatever the form says of them."""

    ordered = False

    def __init__(self, form: WeightForm, inputs: int) -> None:
        self._form, self._size = form, form.inputs if form.inputs < inputs else 0
        self.kind = packed.float8_format(self._size)

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Rearrange the codes, and spread scales over the outputs and the groups of inputs that the kernels know.

        Raises:
            CheckpointError: CORE-M160, a code or a scale is no number.
        """
        codes, scales = self._codes_of(part)
        _check(codes, scales)

        def some(rows: slice) -> packed.PackedWeight:
            few = range(len(codes))[rows]
            index = torch.arange(few.start, few.stop) // (self._form.outputs or len(codes))
            spread = scales[index] if len(scales) > 1 else scales.expand(len(few), -1)
            return packed.pack_float8(codes[rows], spread, self._size)

        packed.pack_rows(self.kind, *codes.shape, out, some)

    def _codes_of(self, part: Part) -> tuple[Tensor, Tensor]:
        """Return the codes as bytes and their scales in float32."""
        if part.form.codes != self._form.codes or part.scales is None or part.form.inputs != self._form.inputs:
            return rounded(part.dense(torch.float32), self._form.outputs, self._size)
        scales = opened_scales(part.scales, part.form.scale)
        return part.codes.view(torch.uint8), scales if part.tensor_scale is None else scales * part.tensor_scale


def opened_scales(scales: Tensor, kind: str) -> Tensor:
    """Return scales of the type that a form names in float32; they come as such or as bytes."""
    if kind == "e4m3":
        return scales.view(torch.float8_e4m3fn).float()
    if kind == "float32":
        return scales.float()
    exponents = scales.view(torch.uint8).int()
    powers = torch.ldexp(torch.ones(exponents.shape), exponents - NO_EXPONENT)
    return torch.where(exponents == 255, torch.nan, powers)


def rounded(values: Tensor, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Return plain numbers as codes, and scales for so many outputs and inputs (0: all), by the largest of each."""
    rows, columns = values.shape
    size = (outputs or rows, inputs or columns)
    missing = (-columns % size[1], -rows % size[0])
    blocks = torch.nn.functional.pad(values, (0, missing[0], 0, missing[1]))
    blocks = blocks.unflatten(1, (-1, size[1])).unflatten(0, (-1, size[0]))
    scales = blocks.abs().amax((1, 3)) / LARGEST
    scales = torch.where(scales > 0, scales, 1.0)
    codes = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn).flatten(0, 1).flatten(1)
    return codes[:rows, :columns].contiguous().view(torch.uint8), scales


def _check(codes: Tensor, scales: Tensor) -> None:
    """Refuse what is no number: the kernels would take a code that is none for 480."""
    what = "codes" if bool(((codes & 127) == 127).any()) else ""
    what = what or ("scales" if not bool(scales.isfinite().all()) else "")
    if what:
        raise CheckpointError(
            "CORE-M160",
            f"a float8 weight of {codes.shape[0]} outputs and {codes.shape[1]} inputs has {what} that are no number.",
            hint="The checkpoint is damaged, or its weights overflowed when they were rounded to float8.",
        )
