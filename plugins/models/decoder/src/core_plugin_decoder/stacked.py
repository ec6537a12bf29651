"""Decoders whose checkpoint has what all experts of a layer read with in one tensor, where others have one for each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core_plugin_decoder.description import Mixture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core_plugin_decoder.description import Decoder, Layer

_FUSED, _ALONE, _DOWN = "gate_up_proj", "up_proj", "down_proj"
"""The parameters `(experts, gate and up, inputs)`, or `(experts, inner, inputs)` without a gate, and `(experts,
outputs, inner)`. transformers calls them so whatever the modules are called that other files have for each expert."""


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
        if isinstance(mixture, Mixture) and mixture.down == _DOWN
        for part in (*mixture.parts, mixture.down)
    }
    return replace(decoder, layers=layers, experts=tuple(sorted(rules)))


def _fused(layer: Layer) -> Layer:
    mixture = layer.mlp
    if not isinstance(mixture, Mixture) or mixture.fused is not None or mixture.bias:
        return layer
    if len(mixture.parts) == 1:
        return replace(layer, mlp=replace(mixture, parts=(_ALONE,), down=_DOWN))
    return replace(layer, mlp=replace(mixture, parts=(_FUSED,), fused="halves", down=_DOWN))
