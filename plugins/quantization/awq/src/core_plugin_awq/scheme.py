"""The format `awq`: linear layers of 4-bit codes with a scale and a zero point for each group of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_bytes, codes_of_words
from core_plugin_unquantized.plain import Plain

from core.api import Part, Stored, WeightForm
from core_plugin_awq.config import FILLED, ORDER, AWQConfig, contradicted, form_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightTensor

CHUNK = 1 << 14
"""Words unpacked at once: intermediate results take eight bytes for each code."""

_ROWS, _RUN = 4, 64
"""Outputs, and inputs of each, whose codes follow each other in the layout `gemv_fast`."""


class AWQFormat(Plain):
    """Codes, zero points and scales, eight of 4 bits in a word.

    Layout `gemm`: `qweight (in, rows / 8)` and `qzeros (groups, rows / 8)`, eight outputs a word; `scales (groups,
    rows)`. Layout `gemv`: `qweight (rows, in / 8)` and `qzeros (rows, groups / 8)`, eight neighbours a word, the first
    in its low bits; `scales (rows, groups)`. There groups are filled up, so that words of zero points are too.

    Layout `gemv_fast`: `qweight (rows / 4, in)` int16, and `scales` and `scaled_zeros (groups, rows)`, filled up alike;
    the second are the values of code 0.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = AWQConfig.read(ctx.checkpoint)

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        size = self._config.size(site, part)
        return super().form(site, part) if size is None else form_of(size)

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer."""
        size = self._config.size(site, part)
        if size is None:
            return super().stored(site, part)
        if self._config.layout in FILLED:
            words = max(1, 128 // size)  # of zero points, that are filled up to such a number
            per, unit = (1, 8 * words * size), (1, 8 * words)
            if self._config.layout == "gemv_fast":
                shared = (Stored(name, (1, 0), per=per, unit=unit) for name in ("scales", "scaled_zeros"))
                return Stored("qweight", per=(_ROWS, _RUN), unit=(1, _RUN)), *shared
            return (
                Stored("qweight", per=(1, 8)),
                Stored("qzeros", per=per, unit=(1, words)),
                Stored("scales", per=per, unit=unit),
            )
        inputs, each = (0, size) if size > 0 else (None, 1)
        return (
            Stored("qweight", (1, 0), per=(8, 1)),
            Stored("qzeros", (1, inputs), per=(8, each)),
            Stored("scales", (1, inputs), per=(1, each)),
        )

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the codes one by one. Raises `CheckpointError` CORE-M160: there is not one scale for each group."""
        size = self._config.size(site, part)
        if size is None:
            return super().read(site, part, tensors)
        form = form_of(size)
        if self._config.layout == "gemv_fast":
            return _fast(form, site.in_features, tensors)
        scales, words = tensors["scales"].dense(torch.float32), tensors["qweight"].raw()
        if self._config.layout == "gemv":
            zeros, groups = codes_of_words(tensors["qzeros"].raw(), 4), -(-site.in_features // size)
            return Part(form, codes_of_words(words, 4), scales[:, :groups].contiguous(), zeros[:, :groups].contiguous())
        scales, zeros = scales.t().contiguous(), unpack(tensors["qzeros"].raw())
        if scales.shape != zeros.shape or (not form.inputs and scales.shape[1] != 1):
            raise contradicted(
                f"in '{site.module(part)}' the scales {tuple(scales.shape)} and zero points {tuple(zeros.shape)} are "
                f"not those of its 'quantization_config'"
            )
        return Part(form, unpack(words), scales, zeros)


def unpack(words: Tensor) -> Tensor:
    """Return the nibbles of `words (inputs, outputs / 8)` int32 in their places: `(outputs, inputs)` uint8."""
    place = torch.tensor(ORDER, device=words.device).argsort()
    shifts = place.int() * 4
    codes = torch.empty(words.shape[1] * 8, words.shape[0], dtype=torch.uint8, device=words.device)
    step = max(1, CHUNK // words.shape[1])
    for some, out in zip(words.split(step), codes.split(step, dim=1), strict=True):
        out.copy_(((some.unsqueeze(-1) >> shifts) & 15).flatten(1).t())
    return codes


def _fast(form: WeightForm, inputs: int, tensors: Mapping[str, WeightTensor]) -> Part:
    """Return a part of the layout `gemv_fast`. Its zero points have fractions: they are stored times their scales."""
    words, groups = tensors["qweight"].raw(), -(-inputs // form.inputs)
    if words.dtype != torch.int16:
        raise contradicted(f"'{tensors['qweight'].name}' holds {words.dtype}, not torch.int16")
    shared = (tensors[name].dense(torch.float32)[:groups] for name in ("scales", "scaled_zeros"))
    scales, values = (one.t().contiguous() for one in shared)
    if bool(((scales == 0) & (values != 0)).any()):
        raise contradicted(f"'{tensors['scales'].name}' has scales of 0 where 'scaled_zeros' has values")
    return Part(form, unpack_fast(words), scales, values.div_(torch.where(scales == 0, -1.0, -scales)))


def unpack_fast(words: Tensor) -> Tensor:
    """Return the codes of `words (outputs / 4, inputs)` int16: `(outputs, inputs)` uint8.

    The 256 codes of 4 outputs and 64 inputs follow each other in 64 words, those of the first output before those of
    the second. Of 32 inputs, 8 are taken from every run of 8, two neighbours of each: first ones before second ones.
    """
    codes = torch.empty(words.shape[0] * _ROWS, words.shape[1], dtype=torch.uint8, device=words.device)
    step = max(1, CHUNK // words.shape[1])
    for some, out in zip(words.split(step), codes.split(step * _ROWS), strict=True):
        nibbles = codes_of_bytes(some.contiguous().view(torch.uint8))
        tiles = nibbles.view(len(some), -1, _ROWS, _RUN // 32, 4, 2, 4)  # 32 inputs; pair, first or second, run
        out.view(len(some), _ROWS, -1, _RUN // 32, 4, 4, 2).copy_(tiles.permute(0, 2, 1, 3, 6, 4, 5))
    return codes
