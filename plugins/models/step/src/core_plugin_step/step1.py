"""Step-1: Llama's decoder with ALiBi, in which the distance counts by its square root."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, alibi_slopes, shape_of

from core.api import MOST_POSITIONS

_KEYS = {"num_key_value_heads": "num_attention_groups"}
_POSITIONS = 32768


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "Step1ForCausalLM", _KEYS)
    given.refuse("rope_scaling", "num_experts", "moe_num_experts")
    size, eps = given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    bias, mlp_bias = given.flag("attention_bias"), given.flag("mlp_bias")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(1),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            slopes=alibi_slopes(given.heads()),
            rooted=True,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=mlp_bias,
            down_bias=mlp_bias,
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=given.positions(given.integer("max_seq_len", _POSITIONS, most=MOST_POSITIONS)),
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings", default=True),
    )


shape = shape_of(read)


class Step1(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
