"""GLM-4.5 to GLM-4.7: mixtures of experts behind a few dense layers; half of each head is rotated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Norm,
    beyond,
    grouped_mixture,
    shape_of,
)

_USUAL = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1408,
    "norm_topk_prob": True,
}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "Glm4MoeForCausalLM", {"n_routed_experts": "num_local_experts"})
    rope, size, eps = given.rope(partial=0.5), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    normed = given.flag("use_qk_norm")
    attention = Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        bias=given.flag("attention_bias"),
        rope=rope,
        q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps)) if normed else None,
        k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)) if normed else None,
    )
    mlp = MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu"))
    mixture, dense = grouped_mixture(given), given.count("first_k_dense_replace", 1)
    layers = tuple(
        Layer(
            attention=attention,
            mlp=mlp if index < dense else mixture,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for index in range(given.layers())
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        skips=beyond(given, "num_nextn_predict_layers"),
    )


shape = shape_of(read)


class GlmMoE(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
