"""Codes of floats: e4m3 and e5m2 with scales for multiples of 32 inputs, and e2m1 as MXFP4 and NVFP4 have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api import CheckpointError
from core_plugin_cpu.native import pack_floats, packed
from core_plugin_cpu.native.packed import Format

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import Part, WeightForm

FLOAT8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
"""Codes of one byte, by their names in forms."""

LARGEST = 448.0
"""The largest number in e4m3."""

LARGEST_E2M1 = 6.0
_DOWN, _UP = (0.25, 1.25, 2.5, 5.0), (0.75, 1.75, 3.5)
"""Middles between the numbers 0, 0.5, 1, 1.5, 2, 3, 4, 6 in e2m1, by which of two a middle becomes: the even code."""

NO_NUMBER = {"float8_e4m3fn": 127, "float8_e5m2": 124, "e2m1": 8}
"""The least code, without its sign, that stands for no finite number."""

NO_EXPONENT = 127
"""Bias of e8m0 exponents."""


class Float8:
    """One byte a weight. The kernels leave activations as they are, whatever the form says of them."""

    ordered = False

    def __init__(self, form: WeightForm, inputs: int) -> None:
        self._form, self._size = form, form.inputs if form.inputs < inputs else 0
        self._dtype = FLOAT8[form.codes]
        self.kind = pack_floats.float8_format(self._size, self._dtype)

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Rearrange the codes, and spread scales over the outputs and the groups of inputs that the kernels know.

        Raises:
            CheckpointError: CORE-M160, a code or a scale is no number.
        """
        codes, scales, outputs = self._codes_of(part)
        _check(codes & 127, scales, self._form.codes)

        def some(rows: slice) -> packed.PackedWeight:
            few = range(len(codes))[rows]
            index = torch.arange(few.start, few.stop) // (outputs or len(codes))
            spread = scales[index] if len(scales) > 1 else scales.expand(len(few), -1)
            return pack_floats.pack_float8(codes[rows], spread, self._size, self._dtype)

        packed.pack_rows(self.kind, *codes.shape, out, some)

    def _codes_of(self, part: Part) -> tuple[Tensor, Tensor, int]:
        """Return the codes as bytes, their scales in float32, and how many outputs share one (0: all)."""
        if part.form.codes != self._form.codes or part.scales is None or part.form.inputs != self._form.inputs:
            outputs = self._form.outputs
            return *rounded(part.dense(torch.float32), outputs, self._size, self._dtype), outputs
        scales = opened_scales(part.scales, part.form.scale)
        scales = scales if part.tensor_scale is None else scales * part.tensor_scale
        return part.codes.view(torch.uint8), scales, part.form.outputs


class Float4:
    """Four bits a weight: a power of two for 32 inputs (MXFP4), or a number in e4m3 for 16 and one for all (NVFP4)."""

    ordered = False

    def __init__(self, form: WeightForm) -> None:
        self._form = form
        self.kind = Format.MXFP4 if form.scale == "e8m0" else Format.NVFP4

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Rearrange the codes and scales.

        Raises:
            CheckpointError: CORE-M160, a scale is no number.
        """
        codes, scales, whole = self._codes_of(part)
        _check(codes & 7, opened_scales(scales, self._form.scale), self._form.codes)

        def some(rows: slice) -> packed.PackedWeight:
            return pack_floats.pack_float4(codes[rows].contiguous(), scales[rows].contiguous(), whole)

        packed.pack_rows(self.kind, *codes.shape, out, some)

    def _codes_of(self, part: Part) -> tuple[Tensor, Tensor, Tensor | None]:
        alike = (part.form.codes, part.form.scale, part.form.inputs)
        wanted = (self._form.codes, self._form.scale, self._form.inputs)
        if part.scales is None or alike != wanted:
            return rounded_float4(part.dense(torch.float32), power=self.kind == Format.MXFP4)
        scales = part.scales.view(torch.uint8)
        if self.kind == Format.MXFP4:
            return part.codes, scales, None
        return part.codes, scales, torch.ones(()) if part.tensor_scale is None else part.tensor_scale


def rounded_float4(values: Tensor, *, power: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return plain numbers as codes, the bytes of their scales, and the scale of all (None: there is none)."""
    size = 32 if power else 16
    groups = values.unflatten(1, (-1, size))
    largest = groups.abs().amax(-1)
    if power:
        whole, scales = None, (largest.clamp(min=1e-30).log2().floor() - 2 + NO_EXPONENT).to(torch.uint8)
        by = opened_scales(scales, "e8m0")
    else:
        whole = (largest.amax() / (LARGEST * LARGEST_E2M1)).clamp(min=1e-30)
        kept = (largest / LARGEST_E2M1 / whole).clamp(min=2.0**-9).to(torch.float8_e4m3fn)
        scales, by = kept.view(torch.uint8), kept.float() * whole
    up = torch.nextafter(torch.tensor(_UP), torch.zeros(()))
    edges = torch.cat([torch.tensor(_DOWN), up]).sort().values
    sizes = torch.bucketize((groups / by.unsqueeze(-1)).abs().flatten(1), edges)
    return (sizes + 8 * ((values < 0) & (sizes > 0))).to(torch.uint8), scales, whole


def opened_scales(scales: Tensor, kind: str) -> Tensor:
    """Return scales of the type that a form names in float32; they come as such or as bytes."""
    if kind == "e4m3":
        return scales.view(torch.float8_e4m3fn).float()
    if kind == "float32":
        return scales.float()
    exponents = scales.view(torch.uint8).int()  # e8m0
    powers = torch.ldexp(torch.ones(exponents.shape), exponents - NO_EXPONENT)
    return torch.where(exponents == 255, torch.nan, powers)


def rounded(values: Tensor, outputs: int, inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return plain numbers as codes, and scales for so many outputs and inputs (0: all), by the largest of each."""
    rows, columns = values.shape
    size = (outputs or rows, inputs or columns)
    missing = (-columns % size[1], -rows % size[0])
    blocks = torch.nn.functional.pad(values, (0, missing[0], 0, missing[1]))
    blocks = blocks.unflatten(1, (-1, size[1])).unflatten(0, (-1, size[0]))
    scales = blocks.abs().amax((1, 3)) / torch.finfo(dtype).max
    scales = torch.where(scales > 0, scales, 1.0)
    codes = (blocks / scales[:, None, :, None]).to(dtype).flatten(0, 1).flatten(1)
    return codes[:rows, :columns].contiguous().view(torch.uint8), scales


def _check(sizes: Tensor, scales: Tensor, kind: str) -> None:
    """Refuse what is no finite number: the kernels would take a code, here without its sign, for one all the same."""
    what = "codes" if bool((sizes >= NO_NUMBER[kind]).any()) else ""
    what = what or ("scales" if not bool(scales.isfinite().all()) else "")
    if what:
        outputs, inputs = sizes.shape
        raise CheckpointError(
            "CORE-M160",
            f"a weight of floats of {outputs} outputs and {inputs} inputs has {what} that are no number.",
            hint="The checkpoint is damaged, or its weights overflowed when they were rounded to float8.",
        )
