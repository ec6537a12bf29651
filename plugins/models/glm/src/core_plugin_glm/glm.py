"""GLM-4: half of each head is rotated, by neighbouring pairs. The models of 2025 have norms behind each part, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

_USUAL = {"num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "GlmForCausalLM")
    rope, size = given.rope(partial=0.5, interleaved=True), given.head_dim()
    eps = given.number("rms_norm_eps", 1.5625e-7, least=0.0)
    sandwich = given.architecture.startswith("Glm4")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=given.flag("attention_bias", default=True),
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            fused="gate_up_proj",
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        after_attention=Norm(name="post_self_attn_layernorm", eps=eps) if sandwich else None,
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        after_mlp=Norm(name="post_mlp_layernorm", eps=eps) if sandwich else None,
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


class Glm(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
