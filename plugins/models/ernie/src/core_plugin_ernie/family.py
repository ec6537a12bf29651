"""ERNIE 4.5: Llama's decoder, with heads rotated by neighbouring pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

_USUAL = {"num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "Ernie4_5ForCausalLM")
    given.expect("compression_ratio", 1.0)
    rope, size = given.rope(theta=500000.0, interleaved=True), given.head_dim()
    eps, bias = given.number("rms_norm_eps", 1e-5, least=0.0), given.flag("use_bias")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=bias,
            down_bias=bias,
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
        tied=given.flag("tie_word_embeddings", default=True),
    )


shape = shape_of(read)


class Ernie(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
