"""Seed-OSS: Llama's decoder, with biases of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

_USUAL = {"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 524288}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "SeedOssForCausalLM")
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-6, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=given.flag("attention_bias", default=True),
            output_bias=given.flag("attention_out_bias"),
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=given.flag("mlp_bias"),
            down_bias=given.flag("mlp_bias"),
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class SeedOss(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
