"""The format `awq`: linear layers of 4-bit codes with a scale and a zero point for each group of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.plain import Plain

from core.api import CheckpointError, Part, Stored, WeightForm
from core_plugin_awq.config import ORDER, AWQConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightTensor

CHUNK = 1 << 14
"""Words unpacked at once: intermediate results take eight bytes for each code."""


class AWQFormat(Plain):
    """`qweight (in, rows / 8)` and `qzeros (groups, rows / 8)`, eight outputs a word; `scales (groups, rows)`."""

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = AWQConfig.read(ctx.checkpoint)
        self._form = self._config.form

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        return self._form if self._config.quantizes(site, part) else super().form(site, part)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer."""
        if not self._config.quantizes(site, part):
            return super().stored(site, part)
        inputs, size = (0, self._form.inputs) if self._form.inputs else (None, 1)
        return (
            Stored("qweight", (1, 0), per=(8, 1)),
            Stored("qzeros", (1, inputs), per=(8, size)),
            Stored("scales", (1, inputs), per=(1, size)),
        )

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the codes one by one. Raises `CheckpointError` CORE-M160: there is not one scale for each group."""
        if not self._config.quantizes(site, part):
            return super().read(site, part, tensors)
        scales = tensors["scales"].dense(torch.float32).t().contiguous()
        zeros = unpack(tensors["qzeros"].raw())
        if scales.shape != zeros.shape or (not self._form.inputs and scales.shape[1] != 1):
            raise CheckpointError(
                "CORE-M160",
                f"in '{site.module(part)}' the scales {tuple(scales.shape)} and zero points {tuple(zeros.shape)} are "
                f"not those of its 'quantization_config'.",
                hint="The weights and config.json do not belong together.",
            )
        return Part(self._form, unpack(tensors["qweight"].raw()), scales, zeros)


def unpack(words: Tensor) -> Tensor:
    """Return the nibbles of `words (inputs, outputs / 8)` int32 in their places: `(outputs, inputs)` uint8."""
    place = torch.tensor(ORDER, device=words.device).argsort()
    shifts = place.int() * 4
    codes = torch.empty(words.shape[1] * 8, words.shape[0], dtype=torch.uint8, device=words.device)
    step = max(1, CHUNK // words.shape[1])
    for some, out in zip(words.split(step), codes.split(step, dim=1), strict=True):
        out.copy_(((some.unsqueeze(-1) >> shifts) & 15).flatten(1).t())
    return codes
