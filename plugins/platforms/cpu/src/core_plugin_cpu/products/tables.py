"""Codes of four bits that stand for numbers of a table, with a scale for each group of inputs: nf4, and fp4 of
bitsandbytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api import CheckpointError
from core_plugin_cpu.native import pack_floats, packed
from core_plugin_cpu.native.pack_floats import TABLE_GROUP
from core_plugin_cpu.native.packed import Format

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import Part, WeightForm

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Quantiles of the normal distribution."""

FP4 = (0.0, 0.0052083333, 0.6666666667, 1.0, 0.3333333333, 0.5, 0.1666666667, 0.25)
"""Of the codes 0 to 7; bit 3 is the sign."""

VALUES = {"nf4": NF4, "fp4": (*FP4, *(-value for value in FP4))}
"""Tables by the kind of the codes, as the kernels have them."""


def has_kernel(form: WeightForm) -> bool:
    """Whether the form is one of these, in groups that the kernels know."""
    if form.codes not in VALUES or form.scale != "float32" or form.zeros or form.ordered:
        return False
    return form.outputs == 1 and form.inputs > 0 and form.inputs % TABLE_GROUP == 0


class Table:
    """Half a byte a weight, activations as they are."""

    ordered = False

    def __init__(self, form: WeightForm) -> None:
        self._form = form
        self.kind = Format[form.codes.upper()]

    def pack(self, part: Part, out: Tensor, order: Tensor | None) -> None:
        """Rearrange the codes, and spread scales over the groups of inputs that the kernels know.

        Raises:
            CheckpointError: CORE-M160, a scale is no number.
        """
        codes, scales = self._codes_of(part)
        if not bool(scales.isfinite().all()):
            outputs, inputs = codes.shape
            raise CheckpointError(
                "CORE-M160",
                f"a weight of {self._form.codes} of {outputs} outputs, {inputs} inputs has scales that are no number.",
                hint="The checkpoint is damaged, or its weights overflowed when they were rounded.",
            )

        def some(rows: slice) -> packed.PackedWeight:
            return pack_floats.pack_table(self.kind, codes[rows].contiguous(), scales[rows], self._form.inputs)

        packed.pack_rows(self.kind, *codes.shape, out, some)

    def _codes_of(self, part: Part) -> tuple[Tensor, Tensor]:
        alike = (part.form.codes, part.form.outputs, part.form.inputs)
        if part.scales is None or alike != (self._form.codes, 1, self._form.inputs):
            return rounded(part.dense(torch.float32), self._form.codes, self._form.inputs)
        scales = part.scales.float()
        return part.codes, scales if part.tensor_scale is None else scales * part.tensor_scale


def rounded(values: Tensor, kind: str, size: int) -> tuple[Tensor, Tensor]:
    """Return plain numbers as codes, nearest by the largest magnitude of `size` inputs, and these magnitudes."""
    inputs = values.shape[1]
    groups = torch.nn.functional.pad(values, (0, -inputs % size)).unflatten(1, (-1, size))
    scales = groups.abs().amax(-1)
    scales = torch.where(scales > 0, scales, 1.0)
    table, order = torch.tensor(VALUES[kind]).sort(stable=True)
    places = torch.bucketize((groups / scales.unsqueeze(-1)).flatten(1), (table[1:] + table[:-1]) / 2)
    return order[places][:, :inputs].to(torch.uint8), scales
