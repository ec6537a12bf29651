"""MiniCPM3: MiniCPM with latent attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import config_heads

_USUAL: Mapping[str, Any] = {
    "kv_lora_rank": 256,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "max_position_embeddings": 32768,
    "scale_emb": 12,
    "scale_depth": 1.4,
    "dim_model_base": 256,
}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "MiniCPM3ForCausalLM")
    eps, bias = given.number("rms_norm_eps", 1e-5, least=0.0), given.flag("mlp_bias")
    # A head of the values is an equal share of the hidden size, unless it is said.
    values = config_heads(config, "hidden_size", "num_attention_heads")
    attention = given.latent({**_USUAL, "v_head_dim": values}, interleaved=False)
    hidden, layers = given.integer("hidden_size"), given.layers()
    layer = Layer(
        attention=attention,
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=bias,
            down_bias=bias,
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        scale=given.number("scale_depth", math.sqrt(layers)) / math.sqrt(layers),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(layer,) * layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=attention.rope.context,
        dtype=given.dtype(),
        embed_scale=given.number("scale_emb", 1.0),
        logit_scale=given.integer("dim_model_base", hidden) / hidden,
        tied=given.flag("tie_word_embeddings", default=True),
        pooling=given.pooling(),
    )


shape = shape_of(read)


class MiniCPM3(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
