"""The format `fp8`: codes in e4m3 with a scale for each block, each output, or the whole weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.int8 import round_rows
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored
from core_plugin_fp8.config import METHODS, ROUNDED, FP8Config, FP8Options, contradicted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightForm, WeightTensor

SCALES = ("weight_scale", "weight_scale_inv")
INPUT_SCALES = ("input_scale", "activation_scale")
"""Names that checkpoints have for the same."""


class FP8(Plain):
    """Reads checkpoints of the method `fp8`; weights of others are rounded while they are read.

    `weight (rows, in)` float8 and `weight_scale` or `weight_scale_inv`, what the codes are multiplied with:
    `(rows / block, in / block)`, `(rows, 1)` or one number; where activations have a fixed scale, `input_scale` or
    `activation_scale`, one number.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        written = ctx.checkpoint.get("quant_method") in METHODS
        self._config = FP8Config.read(ctx.checkpoint) if written else None
        options = FP8Options.model_validate(dict(ctx.options))
        self._form = options.applied(ROUNDED if self._config is None else self._config.form)

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        return self._form if self._quantizes(site, part) else super().form(site, part)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return codes and scales of a quantized layer."""
        if self._config is None or not self._quantizes(site, part):
            return super().stored(site, part)
        axes = tuple(axis if size else None for axis, size in enumerate(self._config.block))
        per = (max(1, self._config.block[0]), max(1, self._config.block[1]))
        scales = (Stored(name, (axes[0], axes[1]), per=per, optional=True) for name in SCALES)
        fixed = (Stored(name, (None, None), optional=True) for name in INPUT_SCALES if self._config.fixed)
        return Stored("weight"), *scales, *fixed

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return codes and scales as they are stored, or those that plain numbers are rounded to."""
        tensor = tensors["weight"]
        if not self._quantizes(site, part):
            return super().read(site, part, tensors)
        codes = tensor.raw() if tensor.encoding == "plain" else tensor.dense(torch.float32)
        if self._config is None:
            return Part(self._form, *round_rows(codes, torch.float8_e4m3fn))
        if codes.dtype in (torch.float32, torch.bfloat16, torch.float16):
            return super().read(site, part, tensors)  # of an update of the weights
        if codes.dtype != torch.float8_e4m3fn:
            raise contradicted(f"'{tensor.name}' holds {codes.dtype}, not torch.float8_e4m3fn")
        scales = _one_of(tensors, SCALES)
        if scales is None:
            raise contradicted(f"'{tensor.name}' has no {' or '.join(SCALES)}")
        if scales.dim() < 2:
            scales = scales.view(-1, 1)
        fixed = _one_of(tensors, INPUT_SCALES)
        if self._config.fixed and fixed is None:
            raise contradicted(f"'{tensor.name}' has no {' or '.join(INPUT_SCALES)}, and activations are static")
        return Part(self._form, codes, scales, input_scale=None if fixed is None else fixed.view(()))

    def _quantizes(self, site: LayerSite, part: str) -> bool:
        return site.inner if self._config is None else self._config.quantizes(site, part)


def _one_of(tensors: Mapping[str, WeightTensor], names: Sequence[str]) -> Tensor | None:
    return next((tensors[name].dense(torch.float32) for name in names if name in tensors), None)
