"""Decoders whose checkpoint has one module in the place of several: queries, keys and values, or gate and up."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from core_plugin_decoder.description import MLP, Attention
from core_plugin_decoder.stacked import stacked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from core_plugin_decoder.description import Decoder, Layer

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_WIDENING = ("gate_proj", "up_proj")


def as_stored(decoder: Decoder, config: Mapping[str, Any]) -> Decoder:
    """Return a decoder as its checkpoint stores it.

    `qkv_fused`, `gate_up_fused` and `experts_fused` of a configuration are a reader's words. Families whose checkpoints
    are always so describe it themselves.
    """
    decoder = stacked(decoder, config)
    layers = decoder.layers
    if config.get("qkv_fused") is True:
        layers = tuple(map(_attending, layers))
    if config.get("gate_up_fused") is True:
        layers = tuple(map(_widening, layers))
    return decoder if layers is decoder.layers else replace(decoder, layers=layers)


def _attending(layer: Layer) -> Layer:
    """Return a layer with `qkv_proj`: heads of queries, of keys, of values."""
    attention = layer.attention
    if not isinstance(attention, Attention) or attention.projections != _PROJECTIONS or attention.parts != len("qkv"):
        return layer
    if attention.fused or attention.fused_kv or attention.gated_queries or attention.value_dim:
        return layer
    return replace(layer, attention=replace(attention, fused="qkv_proj"))


def _widening(layer: Layer) -> Layer:
    """Return a layer with `gate_up_proj`: rows of the gate, then those of `up_proj`."""
    mlp = layer.mlp
    if not isinstance(mlp, MLP) or mlp.fused or (mlp.gate, mlp.up) != _WIDENING:
        return layer
    return replace(layer, mlp=replace(mlp, fused="gate_up_proj"))
