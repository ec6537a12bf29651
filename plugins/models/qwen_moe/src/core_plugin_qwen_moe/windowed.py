"""Granite with windows: attention sinks, layers of two kinds, and a rotary base for each layer, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import FULL, SLIDING, CausalLM, Decoder, Fields, shape_of

from core.api import CheckpointError
from core_plugin_granite.family import read as read_granite

_PERIOD = 4
"""One layer in so many sees the whole context, the first of them, where the configuration does not say."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given, decoder = Fields(config, "GraniteSWAForCausalLM"), read_granite(config)
    kinds = given.kinds(lambda index: SLIDING if index % _PERIOD else FULL)
    window, layers = given.window(), []
    for layer, kind, theta in zip(decoder.layers, kinds, _thetas(given), strict=True):
        rope = layer.attention.rope
        if rope is not None:
            rope = rope.model_copy(update={"theta": theta}) if theta else None
        attention = replace(layer.attention, window=window if kind == SLIDING else None, rope=rope, sinks="sinks")
        layers.append(replace(layer, attention=attention))
    return replace(decoder, layers=tuple(layers), tied=given.flag("tie_word_embeddings", default=True))


def _thetas(given: Fields) -> list[float]:
    """Return the rotary base of each layer, 0 for none."""
    values, count = given.config.get("layer_rope_theta"), given.layers()
    if values is None:
        return [given.rope().theta] * count
    if not isinstance(values, list) or len(values) != count or not all(isinstance(one, int | float) for one in values):
        raise CheckpointError("CORE-M126", f"'layer_rope_theta' must give a number for each of {count} layers.")
    return [float(one) for one in values]


shape = shape_of(read)


class GraniteWindowed(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
