"""The quantization driver `cpu_awq`: AWQ's 4-bit weights multiplied as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from core_plugin_cpu.described import awq_group_size, awq_reasons, require
from core_plugin_cpu.grouped import GroupedLayer, Grouping
from core_plugin_cpu.options import GroupOptions
from core_plugin_cpu.plain import PlainForms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerQuant, LayerSite, QuantContext

_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Nibble, of a word, that holds each of eight outputs."""


class AWQScheme:
    """AWQ linears, and layers that the checkpoint leaves plain."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype, self._grouping = ctx.dtype, _grouping(ctx.checkpoint)
        options = GroupOptions.model_validate(dict(ctx.options))
        self._asked = options.asked
        self._others = PlainForms("cpu_awq", ctx.dtype, options, asked=self._asked)
        self._plain = tuple(cast("Sequence[str]", ctx.checkpoint.get("modules_to_not_convert") or ()))

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        if site.kind == "linear" and not any(name in site.prefix for name in self._plain):
            return AWQLinear(site, self._dtype, self._grouping, asked=self._asked)
        return self._others.layer(site)


class AWQLinear(GroupedLayer):
    """Reads `qweight (in, rows / 8)` and `qzeros (groups, rows / 8)`, eight outputs a word."""

    def codes(self, words: Tensor) -> Tensor:
        """Return the codes."""
        return _unpack(words).t()

    def zeros(self, words: Tensor) -> Tensor:
        """Return the zero points."""
        return _unpack(words).t().to(torch.int16)


def _unpack(words: Tensor) -> Tensor:
    shifts = torch.tensor(_PLACES, dtype=torch.int32) * 4
    return ((words.unsqueeze(-1) >> shifts) & 15).flatten(1).to(torch.uint8)


def _grouping(given: Mapping[str, object]) -> Grouping:
    require("AWQ", awq_reasons(given))
    return Grouping(4, cast(int, awq_group_size(given)))
