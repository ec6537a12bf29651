"""The quantization driver `cpu_gptq`: GPTQ's 4-bit weights multiplied as they are stored, act-order included."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from core_plugin_cpu.described import gptq_reasons, require
from core_plugin_cpu.grouped import GroupedLayer, Grouping
from core_plugin_cpu.options import GroupOptions
from core_plugin_cpu.plain import PlainForms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerQuant, LayerSite, QuantContext

_LOG = logging.getLogger(__name__)


class GPTQScheme:
    """GPTQ linears, and layers that the checkpoint leaves plain."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype, self._grouping = ctx.dtype, _grouping(ctx.checkpoint)
        self._offset = 0 if ctx.checkpoint.get("checkpoint_format") == "gptq_v2" else 1
        options = GroupOptions.model_validate(dict(ctx.options))
        self._asked = options.asked
        self._others = PlainForms("cpu_gptq", ctx.dtype, options, asked=self._asked)
        self._plain = tuple(cast("Sequence[str]", ctx.checkpoint.get("modules_to_not_convert") or ()))
        if self._grouping.bits != 4:
            _LOG.info("no kernel for GPTQ weights of %d bits: they are decoded to %s", self._grouping.bits, ctx.dtype)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        if site.kind == "linear" and not any(name in site.prefix for name in self._plain):
            return GPTQLinear(site, self._dtype, self._grouping, self._offset, asked=self._asked)
        return self._others.layer(site)


class GPTQLinear(GroupedLayer):
    """Reads `qweight (in * bits / 32, rows)` and `qzeros (groups, rows * bits / 32)`.

    Args:
        offset: What is added to stored zero points.
    """

    def __init__(self, site: LayerSite, dtype: torch.dtype, grouping: Grouping, offset: int, *, asked: int = 0) -> None:
        super().__init__(site, dtype, grouping, asked=asked)
        self._offset = offset

    def codes(self, words: Tensor) -> Tensor:
        """Return the codes."""
        return self._unpack(words.t())

    def zeros(self, words: Tensor) -> Tensor:
        """Return the zero points."""
        return self._unpack(words).t().to(torch.int16) + self._offset

    def _unpack(self, words: Tensor) -> Tensor:
        bits = self._grouping.bits
        if 32 % bits == 0:
            shifts = torch.arange(0, 32, bits, dtype=torch.int32)
            return ((words.unsqueeze(-1) >> shifts) & (1 << bits) - 1).flatten(1).to(torch.uint8)
        # 32 codes are `bits` words; a code may begin in one and end in the next.
        start = torch.arange(0, 32 * bits, bits)
        run = words.reshape(words.shape[0], -1, bits).long() & 0xFFFFFFFF
        both: Tensor = run[..., start // 32] | run[..., (start // 32 + 1).clamp(max=bits - 1)] << 32
        return ((both >> start % 32) & (1 << bits) - 1).flatten(1).to(torch.uint8)


def _grouping(given: Mapping[str, object]) -> Grouping:
    require("GPTQ", gptq_reasons(given))
    bits, size = cast(int, given.get("bits", 4)), cast(int, given.get("group_size", 128))
    ordered, symmetric = bool(given.get("desc_act")) and size != -1, given.get("sym") is True
    return Grouping(bits, size, indexed=True, ordered=ordered, symmetric=symmetric)
