"""Parts that a format has read as a whole, cut to what a rank or a part of a fused module takes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from core.api.quantization import LayerSite
from core.layers.cuts import inside

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from core.api.forms import Part
    from core.layers.cuts import Cut, Cuts


def whole_site(site: LayerSite, cuts: Cuts) -> LayerSite:
    """Return a layer with the sizes that its tensors have in the checkpoint: the site itself where nothing is cut."""
    parts = tuple((name, cut.whole) for (name, _), cut in zip(site.parts, cuts.outputs, strict=True))
    if parts == tuple(site.parts) and cuts.inputs.complete:
        return site
    return replace(site, in_features=cuts.inputs.whole, parts=parts)


def cut_part(part: Part, outputs: Cut, inputs: Cut, module: str) -> Part:
    """Return what is taken of a part, in memory of its own.

    Args:
        module: Its path, for errors.

    Raises:
        CheckpointError: CORE-M185, the cut divides what shares a scale.
    """
    form = part.form
    groups = (("outputs", outputs, form.outputs), ("inputs", inputs, 0 if form.ordered else form.inputs))
    for what, cut, group in groups:
        if group > 1 and cut.splits(group):
            raise inside(f"{module}.weight", cut, f"{group} {what}", module)
    taken = replace(
        part,
        codes=_taken(part.codes, outputs, inputs),
        scales=_shared(part, part.scales, outputs, inputs),
        zeros=_shared(part, part.zeros, outputs, inputs),
        group_of=None if part.group_of is None else inputs.take(part.group_of, 0).contiguous(),
    )
    if part.decode is not None:
        taken.decode = partial(_opened, part.decode, outputs, inputs)
    return taken


def _taken(values: Tensor, outputs: Cut, inputs: Cut) -> Tensor:
    """Return the outputs and inputs of values that have one for each; of blocks of codes all along the inputs."""
    rows = outputs.take(values, 0)
    return (inputs.take(rows, 1) if values.shape[1] == inputs.whole else rows).contiguous()


def _shared(part: Part, values: Tensor | None, outputs: Cut, inputs: Cut) -> Tensor | None:
    """Return the scales, or zero points, of what is taken."""
    if values is None:
        return None
    form = part.form
    if form.outputs and values.shape[0] > 1:
        values = outputs.grouped(form.outputs, 1).take(values, 0)
    if form.inputs and not form.ordered and values.shape[1] > 1:
        values = inputs.grouped(form.inputs, 1).take(values, 1)
    return values.contiguous()


def _opened(decode: Callable[[torch.dtype], Tensor], outputs: Cut, inputs: Cut, dtype: torch.dtype) -> Tensor:
    return _taken(decode(dtype), outputs, inputs)
