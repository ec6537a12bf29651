"""MiniCPM: Llama's decoder, with factors on the embedding, on what layers add, and on what the head reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "MiniCPMForCausalLM")
    given.refuse("num_experts")
    rope, bias, eps = given.rope(), given.flag("attention_bias"), given.number("rms_norm_eps", 1e-6, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        scale=given.number("scale_depth", 1.0) / math.sqrt(given.layers()),
    )
    hidden = given.integer("hidden_size")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        embed_scale=given.number("scale_emb", 1.0),
        logit_scale=given.integer("dim_model_base", 1) / hidden,
        tied=given.flag("tie_word_embeddings", default=True),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class MiniCPM(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
