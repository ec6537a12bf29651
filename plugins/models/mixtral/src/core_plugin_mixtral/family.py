"""Mixtral: Mistral's decoder, with a mixture of experts in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, Mixture, Norm, shape_of

from core.api import Routing


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "MixtralForCausalLM")
    rope, eps = given.rope(theta=1e6), given.number("rms_norm_eps", 1e-5, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(default=8),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            rope=rope,
            window=given.window(),
        ),
        mlp=Mixture(
            experts=given.integer("num_local_experts", 8),
            size=given.integer("intermediate_size"),
            routing=Routing(top_k=given.integer("num_experts_per_tok", 2), renormalize=True),
            activation=given.text("hidden_act", "silu"),
            name="block_sparse_moe",
            parts=("w1", "w3"),
            down="w2",
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


class Mixtral(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
