"""Weights that are made up: every number is drawn, in the form that the checkpoint's method tells of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api.forms import PLAIN, Part
from core.layers.params import INVENTED

if TYPE_CHECKING:
    from core.api.forms import WeightForm

_FLOATS = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
_TABLES = ("e2m1", "nf4", "fp4")
_NIBBLES = 16
"""Codes of 4-bit tables."""


def invented_part(form: WeightForm, outputs: int, inputs: int, random: torch.Generator) -> Part:
    """Return a part of `outputs` by `inputs` numbers near 0.

    Where core does not know the codes of the form, they are plain numbers, which products take for an update, too.
    Plain numbers stay on the device that draws them, codes come to the host, as those of a checkpoint do.
    """
    device, shape = random.device, (outputs, inputs)
    if form.codes in _FLOATS:
        codes = torch.randn(shape, generator=random, device=device).to(_FLOATS[form.codes])
    elif form.codes in _TABLES:
        codes = torch.randint(0, _NIBBLES, shape, generator=random, dtype=torch.uint8, device=device)
    elif form.codes == "int":
        low = 0 if form.zeros else -(2 ** (form.bits - 1))
        kind = torch.uint8 if form.zeros else torch.int8
        high = low + 2**form.bits
        codes = torch.randint(low, high, shape, generator=random, dtype=torch.int16, device=device).to(kind)
    else:
        return Part(PLAIN, torch.randn(shape, generator=random, device=device) * INVENTED)
    runs = -(-inputs // form.inputs) if form.inputs else 1
    scales = (-(-outputs // form.outputs) if form.outputs else 1, runs)
    part = Part(form, codes.cpu(), _scales(form, scales))
    if form.zeros:
        part.zeros = torch.full(scales, 2 ** (form.bits - 1), dtype=torch.int32)
    if form.scale == "e4m3":
        part.tensor_scale = torch.tensor(INVENTED)
    if form.ordered:
        part.group_of = torch.arange(inputs) // (form.inputs or inputs)
    return part


def _scales(form: WeightForm, shape: tuple[int, int]) -> torch.Tensor:
    """Return equal scales that bring codes near 0."""
    if form.scale == "e8m0":
        return torch.full(shape, 127 - 6, dtype=torch.uint8)
    if form.scale == "e4m3":
        return torch.ones(shape, dtype=torch.float8_e4m3fn)
    return torch.full(shape, INVENTED / (2 ** (form.bits - 2) if form.codes == "int" else 1.0))
