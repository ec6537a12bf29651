"""GPT-BigCode (SantaCoder, StarCoder 1): GPT-2 with one head of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, shape_of

from core_plugin_gpt.usual import KEYS, decoder_of, layer_norm, scale_of, wide


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GPTBigCodeForCausalLM", KEYS)
    given.refuse("add_cross_attention")
    layer = Layer(
        attention=Attention(
            name="attn",
            heads=given.heads(),
            kv_heads=1 if given.flag("multi_query", default=True) else given.heads(),
            head_dim=given.head_dim(),
            scale=scale_of(given),
            fused="c_attn",
            # With as many heads of keys and values as of queries, head by head.
            split="interleaved",
            output="c_proj",
            bias=True,
            output_bias=True,
        ),
        mlp=wide(given, ("c_fc", "c_proj"), "gelu_pytorch_tanh"),
        before_attention=layer_norm(given, "ln_1"),
        before_mlp=layer_norm(given, "ln_2"),
    )
    return decoder_of(given, [layer] * given.layers())


shape = shape_of(read)


class GPTBigCode(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
