"""GPT-2: learned positions, layer norms, matrices stored as `(in, out)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, shape_of

from core_plugin_gpt.usual import KEYS, TRANSPOSED, decoder_of, layer_norm, scale_of, wide


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GPT2LMHeadModel", KEYS)
    given.refuse("add_cross_attention")
    layers = [_layer(given, index) for index in range(given.layers())]
    return decoder_of(given, layers, transposes=TRANSPOSED)


def _layer(given: Fields, index: int) -> Layer:
    return Layer(
        attention=Attention(
            name="attn",
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=given.head_dim(),
            scale=scale_of(given, index),
            fused="c_attn",
            output="c_proj",
            bias=True,
            output_bias=True,
        ),
        mlp=wide(given, ("c_fc", "c_proj")),
        before_attention=layer_norm(given, "ln_1"),
        before_mlp=layer_norm(given, "ln_2"),
    )


shape = shape_of(read)


class GPT2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
