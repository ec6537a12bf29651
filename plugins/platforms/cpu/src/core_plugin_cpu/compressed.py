"""The quantization driver `cpu_compressed_tensors`: int8 weights as llm-compressor writes them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from core_plugin_cpu.described import compressed_reasons, require
from core_plugin_cpu.native import packed
from core_plugin_cpu.native.packed import Format
from core_plugin_cpu.options import DenseOptions
from core_plugin_cpu.packed_layers import ProductLayer, declare_bias, part_of
from core_plugin_cpu.plain import PlainForms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core.api import LayerQuant, LayerSite, ParamBuilder, QuantContext, WeightTensor


class CompressedScheme:
    """Int8 linears, and layers that the checkpoint leaves plain."""

    def __init__(self, ctx: QuantContext) -> None:
        self._dtype, self._activations = ctx.dtype, _activation_bits(ctx.checkpoint)
        options = DenseOptions.model_validate(dict(ctx.options))
        self._others = PlainForms("cpu_compressed_tensors", ctx.dtype, options)
        self._ignored = tuple(cast("Sequence[str]", ctx.checkpoint.get("ignore") or ()))

    def for_site(self, site: LayerSite) -> LayerQuant:
        """Return how this layer is stored. The parts of one layer are all quantized, or none is."""
        part = site.parts[0][0]
        module = f"{site.prefix}.{part}" if part else site.prefix
        if site.kind == "linear" and not any(_matches(name, module) for name in self._ignored):
            return Int8Linear(site, self._dtype, self._activations)
        return self._others.layer(site)


class Int8Linear(ProductLayer):
    """Reads `weight (rows, in)` int8 and `weight_scale`, one per row or one for all."""

    def __init__(self, site: LayerSite, dtype: torch.dtype, activations: int) -> None:
        kind = Format.W8A8 if activations == 8 else Format.W8A16
        super().__init__(site, dtype, [(kind, sum(rows for _, rows in site.parts))])
        self._activations = activations

    def declare(self, params: ParamBuilder) -> None:
        """Declare codes and scales, stacked from the site's parts, and the bias."""
        parts = self._site.parts
        params.declare("weight", (self._rows, self._site.in_features), torch.int8, rows=parts)
        params.declare("weight_scale", (self._rows, 1), torch.float32, rows=parts)
        declare_bias(self._site, params)

    def decode(self, param: str, tensor: WeightTensor) -> Tensor:
        """Return the codes as they are; one scale for every row, where the checkpoint has one for all."""
        if param == "weight":
            return tensor.raw()
        values = tensor.dense(torch.float32)
        if param == "bias":
            return values
        rows = self._site.parts[part_of(self._site, tensor.name)][1]
        return values.reshape(1, 1).expand(rows, 1) if values.numel() == 1 else values.view(-1, 1)

    def finalize(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """Pack the codes with their scales."""
        weight = packed.pack_int8(params["weight"], params["weight_scale"], activations=self._activations)
        return {"weight": weight.data} | {name: value for name, value in params.items() if name == "bias"}


def _matches(name: str, module: str) -> bool:
    return re.match(name[3:], module) is not None if name.startswith("re:") else name == module


def _activation_bits(given: Mapping[str, object]) -> int:
    """Return 8 for activations that are rounded per token, 16 for plain ones.

    Raises:
        CheckpointError: CORE-M160 for any other scheme.
    """
    require("compressed-tensors", compressed_reasons(given))
    (group,) = cast("Mapping[str, Mapping[str, Any]]", given["config_groups"]).values()
    return 8 if group.get("input_activations") else 16
