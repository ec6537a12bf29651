"""Granite: Llama's decoder, with factors on the embedding, on what layers add, on scores and on logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GraniteForCausalLM")
    rope, bias, eps = given.rope(), given.flag("attention_bias"), given.number("rms_norm_eps", 1e-6, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=given.head_dim(),
            scale=given.number("attention_multiplier", 1.0),
            bias=bias,
            output_bias=bias,
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
        scale=given.number("residual_multiplier", 1.0),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        embed_scale=given.number("embedding_multiplier", 1.0),
        logit_scale=1 / given.number("logits_scaling", 1.0, least=1e-6),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class Granite(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
