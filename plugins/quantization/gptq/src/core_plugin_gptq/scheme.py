"""The quantization method `gptq`: codes, zero points and scales decoded at load. Device-neutral, the reference form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from core_plugin_unquantized.layers import PlainLinear, plain_layer
from torch import Tensor

from core_plugin_gptq.config import GPTQConfig

if TYPE_CHECKING:
    from core.api import LayerQuant, LayerSite, ParamBuilder, QuantContext, WeightTensor


class GPTQScheme:
    """GPTQ linears; everything else is plain."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype, self._config = ctx.dtype, GPTQConfig.read(ctx.checkpoint)

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored."""
        if site.kind == "linear" and self._config.quantizes(site.prefix):
            return GPTQLinear(site, self._dtype, self._config)
        return plain_layer(site, self._dtype)


class GPTQLinear(PlainLinear):
    """A linear layer of codes. Everything is turned so that outputs come first and parts can be stacked."""

    def __init__(self, site: LayerSite, dtype: torch.dtype, config: GPTQConfig) -> None:
        super().__init__(site, dtype)
        self._config = config

    def declare(self, params: ParamBuilder) -> None:
        """Declare `qweight (rows, in)`, `qzeros` and `scales (rows, groups)`, `g_idx (parts, in)`, and the bias."""
        parts, inputs = self._site.parts, self._site.in_features
        groups = self._config.groups(inputs)
        params.declare("qweight", (self._rows, inputs), torch.uint8, rows=parts)
        params.declare("qzeros", (self._rows, groups), torch.int16, rows=parts)
        params.declare("scales", (self._rows, groups), torch.float32, rows=parts)
        params.declare("g_idx", (len(parts), inputs), torch.int32, rows=[(name, 1) for name, _ in parts])
        self.declare_bias(params)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return codes and zero points one by one, the scales in float32."""
        if param == "qweight":
            return unpack(tensor.raw().t(), self._config.bits)
        if param == "qzeros":
            return unpack(tensor.raw(), self._config.bits).t().to(torch.int16) + self._config.zero_offset
        if param == "g_idx":
            return tensor.raw().view(1, -1)
        return tensor.dense(torch.float32).t() if param == "scales" else super().decode(param, tensor)

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the decoded weight, and the bias."""
        codes, zeros = params.pop("qweight"), params.pop("qzeros")
        scales, groups = params.pop("scales"), params.pop("g_idx").long()
        counts = torch.tensor([rows for _, rows in self._site.parts], device=codes.device)
        group = groups.repeat_interleave(counts, dim=0)  # (rows, in)
        weight = (codes.float() - zeros.float().gather(1, group)) * scales.gather(1, group)
        return {**params, "weight": weight.to(self._dtype)}


def unpack(words: Tensor, bits: int) -> Tensor:
    """Return the codes of `words (rows, columns * bits / 32)` int32: `(rows, columns)` uint8.

    Bits follow each other through the words, lowest first, so that codes of three bits may begin in one and end in the
    next.
    """
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, device=words.device, dtype=torch.int32)
        return ((words.unsqueeze(-1) >> shifts) & (1 << bits) - 1).flatten(1).to(torch.uint8)
    start = torch.arange(0, 32 * bits, bits, device=words.device)
    run = words.reshape(words.shape[0], -1, bits).long() & 0xFFFFFFFF  # 32 codes
    both: Tensor = run[..., start // 32] | run[..., (start // 32 + 1).clamp(max=bits - 1)] << 32
    return ((both >> start % 32) & (1 << bits) - 1).flatten(1).to(torch.uint8)
