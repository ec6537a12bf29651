"""Decoders whose checkpoint has what all experts of a layer read with in one tensor, where others have one for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core_plugin_decoder.description import Mixture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core_plugin_decoder.description import Decoder, Layer

_APART = ("gate_proj", "up_proj")
_FUSED = "gate_up_proj"
"""The parameter `(experts, gate and up, inputs)`, as transformers has it."""


def stacked(decoder: Decoder, config: Mapping[str, Any]) -> Decoder:
    """Return a decoder as its checkpoint stores it: `experts_fused` in the configuration is a reader's word.

    Architectures whose checkpoints are always so describe it themselves.
    """
    if config.get("experts_fused") is not True or decoder.experts:
        return decoder
    layers = tuple(map(_fused, decoder.layers))
    rules = {
        (f".{mixture.module}.{part}", f".{mixture.module}.{{}}.{part}.weight")
        for mixture in (layer.mlp for layer in layers)
        if isinstance(mixture, Mixture) and mixture.parts == (_FUSED,)
        for part in (_FUSED, mixture.down)
    }
    return replace(decoder, layers=layers, experts=tuple(sorted(rules)))


def _fused(layer: Layer) -> Layer:
    mixture = layer.mlp
    if not isinstance(mixture, Mixture) or mixture.parts != _APART or mixture.bias:
        return layer
    return replace(layer, mlp=replace(mixture, parts=(_FUSED,), fused="halves"))
