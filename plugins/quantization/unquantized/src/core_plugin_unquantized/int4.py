"""Weights of any checkpoint rounded to 4 bits while they are read, with a scale for each group of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from core.api import Part
from core_plugin_unquantized.forms import int4_form
from core_plugin_unquantized.int8 import CHUNK
from core_plugin_unquantized.options import Int4Options
from core_plugin_unquantized.plain import Plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

SHARES = (1.0, 0.96, 0.92, 0.88, 0.84, 0.8)
"""Shares of a group's range that the 16 codes are spread over, where there are zero points."""

STEPS = (8.0, 7.0, 7.5, 8.5, 9.0, 9.5)
"""Steps to a group's largest magnitude, which becomes the code -8 or is cut to it, where there are none."""

_LARGEST_HALF = 65504.0


class Int4(Plain):
    """The format `int4`: linear layers and experts are rounded; embeddings, heads and routers stay plain."""

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._options = Int4Options.model_validate(dict(ctx.options))

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return 4 bits with a scale for each group, or the plain form."""
        return int4_form(site.in_features, self._options) if site.inner else super().form(site, part)

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the rounded codes of an inner layer. Encoded tensors are decoded first."""
        if not site.inner:
            return super().read(site, part, tensors)
        tensor, form = tensors["weight"], self.form(site, part)
        weight = tensor.raw() if tensor.encoding == "plain" else tensor.dense(torch.float32)
        return Part(form, *round_groups(weight, form.inputs, zeros=form.zeros))


def round_groups(weight: Tensor, size: int, *, zeros: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return `weight (n, k)` in 4 bits, a scale for each group of `size` inputs, and a zero point, `(n, k / size)`.

    With zero points, codes are uint8, 0 to 15; without, int8, -8 to 7. Of the scales that `SHARES` or `STEPS` give,
    each group has the one with the least squared error. Scales are numbers in float16, which is how kernels keep them.
    """
    rows, columns = weight.shape
    groups = -(-columns // size)
    codes = torch.empty(weight.shape, dtype=torch.uint8 if zeros else torch.int8, device=weight.device)
    scales = torch.empty(rows, groups, device=weight.device)
    points = torch.empty(rows, groups, dtype=torch.uint8, device=weight.device) if zeros else None
    step = max(1, CHUNK // 8 // columns)  # a few rows at a time: every candidate has float32 copies of them
    for start in range(0, rows, step):
        some = slice(start, start + step)
        values = torch.nn.functional.pad(weight[some].float(), (0, groups * size - columns)).reshape(-1, groups, size)
        scale, point = _best(values, zeros=zeros)
        code = _codes(values, scale, point, zeros=zeros)
        codes[some] = code.flatten(1)[:, :columns]
        scales[some] = scale.squeeze(-1)
        if points is not None:
            points[some] = point.squeeze(-1)
    return codes, scales, points


def _best(values: Tensor, *, zeros: bool) -> tuple[Tensor, Tensor]:
    """Return the scale and the zero point of each group of `values (rows, groups, size)`: `(rows, groups, 1)`."""
    error, best = None, None
    for scale, point in _candidates(values, zeros=zeros):
        rounded = _codes(values, scale, point, zeros=zeros).sub_(point).mul_(scale)
        found = rounded.sub_(values).square_().sum(-1, keepdim=True)
        if error is None or best is None:
            error, best = found, (scale, point)
            continue
        better = found < error
        error = torch.where(better, found, error)
        best = torch.where(better, scale, best[0]), torch.where(better, point, best[1])
    assert best is not None  # there are candidates
    return best


def _codes(values: Tensor, scale: Tensor, point: Tensor, *, zeros: bool) -> Tensor:
    low, high = (0, 15) if zeros else (-8, 7)
    return (values / scale).round_().add_(point).clamp_(low, high)


def _candidates(values: Tensor, *, zeros: bool) -> Iterator[tuple[Tensor, Tensor]]:
    least, most = values.aminmax(dim=-1, keepdim=True)
    if zeros:
        least, most = least.clamp(max=0), most.clamp(min=0)
        for share in SHARES:
            scale = _half((most - least) * (share / 15))
            yield scale, (least * -share / scale).round().clamp(0, 15)
        return
    extreme = torch.where(-least > most, least, most)
    none = torch.zeros_like(extreme)
    for steps in STEPS:
        yield _half(extreme / -steps), none


def _half(scale: Tensor) -> Tensor:
    """Return the next numbers in float16, in float32; 1 for what is 0 there, as in a group of zeros."""
    near = scale.clamp(-_LARGEST_HALF, _LARGEST_HALF).half().float()
    return torch.where(near == 0, 1.0, near)
