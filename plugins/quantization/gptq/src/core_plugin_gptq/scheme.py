"""The format `gptq`: linear layers of codes with a scale, and perhaps a zero point, for each group of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.packing import codes_of_words
from core_plugin_unquantized.plain import Plain

from core.api import CheckpointError, Part, Stored, WeightForm
from core_plugin_gptq.config import GPTQConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from core.api import LayerSite, QuantContext, WeightTensor


class GPTQFormat(Plain):
    """`qweight (in * bits / 32, rows)`, `qzeros (groups, rows * bits / 32)`, `scales (groups, rows)`, `g_idx (in,)`.

    A checkpoint that calls itself symmetric has codes without zero points here: the middle is subtracted.
    """

    def __init__(self, ctx: QuantContext) -> None:
        super().__init__(ctx)
        self._config = GPTQConfig.read(ctx.checkpoint)

    def form(self, site: LayerSite, part: str) -> WeightForm:
        """Return the form of codes, or the plain form."""
        settings = self._config.settings(site, part)
        return super().form(site, part) if settings is None else settings.form

    def stored(self, site: LayerSite, part: str) -> Sequence[Stored]:
        """Return the tensors of a quantized layer. Where groups are in any order, all scales belong to each input."""
        settings = self._config.settings(site, part)
        if settings is None:
            return super().stored(site, part)
        bits, form = settings.bits, settings.form
        per, unit = (32 // bits, 1) if 32 % bits == 0 else (32, bits)
        inputs, size = (0, form.inputs) if form.inputs and not form.ordered else (None, 1)
        return (
            Stored("qweight", (1, 0), per=(1, per), unit=(1, unit)),
            Stored("qzeros", (1, inputs), per=(per, size), unit=(unit, 1)),
            Stored("scales", (1, inputs), per=(1, size)),
            Stored("g_idx", (None, 0), optional=not form.ordered),
        )

    def read(self, site: LayerSite, part: str, tensors: Mapping[str, WeightTensor]) -> Part:
        """Return the codes one by one.

        Raises:
            CheckpointError: CORE-M160, zero points or groups are not those of the checkpoint's settings.
        """
        settings = self._config.settings(site, part)
        if settings is None:
            return super().read(site, part, tensors)
        module, bits, form = site.module(part), settings.bits, settings.form
        codes = codes_of_words(tensors["qweight"].raw().t(), bits)
        scales = tensors["scales"].dense(torch.float32).t().contiguous()
        zeros = codes_of_words(tensors["qzeros"].raw(), bits).t().to(torch.int16) + settings.zero_offset
        if scales.shape != zeros.shape or (not form.inputs and scales.shape[1] != 1):
            raise _contradicted(module, f"the scales {tuple(scales.shape)} and zero points {tuple(zeros.shape)}")
        group_of = _groups(form, module, tensors.get("g_idx"), scales.shape[1])
        if not settings.symmetric:
            return Part(form, codes, scales, zeros, group_of)
        middle = 1 << bits - 1
        if not bool((zeros == middle).all()):
            raise _contradicted(module, "the zero points, which differ from the middle of the codes,")
        return Part(form, codes.sub_(middle).view(torch.int8), scales, group_of=group_of)


def _groups(form: WeightForm, module: str, tensor: WeightTensor | None, count: int) -> Tensor | None:
    """Return the group of each input, where they are in any order. Raises `CheckpointError` CORE-M160."""
    if tensor is None:
        return None
    groups = tensor.raw().long()
    if form.ordered:
        if not bool(((groups >= 0) & (groups < count)).all()):
            raise _contradicted(module, f"the groups that g_idx tells, beyond the {count} that have scales,")
        return groups
    plain = torch.arange(len(groups), device=groups.device) // (form.inputs or len(groups))
    if not torch.equal(groups - groups[0], plain):  # a rank's begin anywhere
        raise _contradicted(module, "the groups that g_idx tells")
    return None


def _contradicted(module: str, what: str) -> CheckpointError:
    return CheckpointError(
        "CORE-M160",
        f"in '{module}' {what} are not those of its 'quantization_config'.",
        hint="The weights and config.json do not belong together.",
    )
