"""Plain numbers rounded to a form, as an update of the weights may bring them: nearest codes, by the extremes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from core.api import CheckpointError, Part, WeightForm
from core_plugin_kernels_triton.products.stored import FLOAT8, TABLES

_LARGEST_E4M3 = 448.0
_EXPONENT_BIAS = 127


def encoded(part: Part, form: WeightForm) -> Part:
    """Return the part's values in a form.

    Raises:
        CheckpointError: CORE-M160, in blocks of a file format, which nothing here makes.
    """
    values = part.dense(torch.float32)
    if form.codes.startswith("gguf:"):
        raise CheckpointError(
            "CORE-M160",
            f"an update brings weights of the form {part.form.key} for a layer that holds {form.key}, and there is "
            "nothing here that rounds numbers to these blocks.",
            hint="Send the update in the blocks of the file, or serve a checkpoint in another format.",
        )
    outputs, inputs = form.outputs or len(values), form.inputs or values.shape[1]
    blocks = _blocks(values, outputs, inputs)
    scales, whole = _scales(blocks, form)
    zeros = _zeros(blocks, scales, form) if form.zeros else None
    codes = _codes(blocks, _opened(scales, whole, form), zeros, form)
    codes = codes.transpose(1, 2).flatten(0, 1).flatten(1)[: len(values), : values.shape[1]]
    group_of = torch.arange(values.shape[1], device=values.device) // inputs if form.ordered else None
    made = Part(form, codes, scales, zeros, group_of, whole)
    return replace(made, bias=part.bias)


def _blocks(values: Tensor, outputs: int, inputs: int) -> Tensor:
    """Return `(blocks, blocks beside each other, outputs, inputs)`; the last ones are filled up with zeros."""
    down, right = -len(values) % outputs, -values.shape[1] % inputs
    padded = functional.pad(values, (0, right, 0, down))
    return padded.unflatten(0, (-1, outputs)).unflatten(2, (-1, inputs)).transpose(1, 2)


def _scales(blocks: Tensor, form: WeightForm) -> tuple[Tensor, Tensor | None]:
    """Return the scales as they are stored, and that of the whole part."""
    if form.zeros:
        low, high = blocks.amin((2, 3)).clamp(max=0), blocks.amax((2, 3)).clamp(min=0)
        return _positive((high - low) / (2**form.bits - 1)), None
    if form.codes == "int":
        low, high = blocks.amin((2, 3)), blocks.amax((2, 3))
        most = max(1, 2 ** (form.bits - 1) - 1)
        return _positive(torch.maximum(-low / 2 ** (form.bits - 1), high / most)), None
    largest = blocks.abs().amax((2, 3)) / _most(form)
    if form.scale == "e8m0":
        exponents = torch.ceil(torch.log2(_positive(largest))).clamp(-_EXPONENT_BIAS, _EXPONENT_BIAS)
        return (exponents + _EXPONENT_BIAS).to(torch.uint8), None
    if form.scale == "e4m3":
        whole = _positive(largest.amax() / _LARGEST_E4M3)
        return (largest / whole).to(torch.float8_e4m3fn), whole
    return _positive(largest), None


def _most(form: WeightForm) -> float:
    return float(torch.finfo(FLOAT8[form.codes]).max) if form.codes in FLOAT8 else max(TABLES[form.codes])


def _opened(scales: Tensor, whole: Tensor | None, form: WeightForm) -> Tensor:
    """Return scales to divide by."""
    wide = torch.exp2(scales.float() - _EXPONENT_BIAS) if form.scale == "e8m0" else scales.float()
    return _positive(wide if whole is None else wide * whole)


def _zeros(blocks: Tensor, scales: Tensor, form: WeightForm) -> Tensor:
    return torch.round(-blocks.amin((2, 3)).clamp(max=0) / scales).clamp(0, 2**form.bits - 1)


def _codes(blocks: Tensor, scales: Tensor, zeros: Tensor | None, form: WeightForm) -> Tensor:
    ratio = blocks / scales[..., None, None]
    if zeros is not None:
        return (torch.round(ratio) + zeros[..., None, None]).clamp(0, 2**form.bits - 1).to(torch.uint8)
    if form.codes == "int":
        half = 2 ** (form.bits - 1)
        return torch.round(ratio).clamp(-half, half - 1).to(torch.int8)
    if form.codes in FLOAT8:
        return ratio.clamp(-_most(form), _most(form)).to(FLOAT8[form.codes])
    values, order = torch.tensor(TABLES[form.codes], device=blocks.device).sort()
    edges = (values[1:] + values[:-1]) / 2
    return order[torch.bucketize(ratio, edges)].to(torch.uint8)


def _positive(scales: Tensor) -> Tensor:
    return torch.where(scales > 0, scales, 1.0)
