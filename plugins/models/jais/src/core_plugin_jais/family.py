"""Jais 2: layer norms, biases everywhere, and an MLP of squared ReLU without a gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({"max_position_embeddings": 8192, **config}, "Jais2ForCausalLM")
    rope, size, eps = given.rope(), given.head_dim(), given.number("layer_norm_eps", 1e-5, least=0.0)
    bias, mlp_bias = given.flag("attention_bias", default=True), given.flag("mlp_bias", default=True)

    def norm(name: str) -> Norm:
        return Norm(name=name, kind="layer", eps=eps, bias=True)

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
            activation=given.text("hidden_act", "relu2"),
            gate=None,
            bias=mlp_bias,
            down_bias=mlp_bias,
        ),
        before_attention=norm("input_layernorm"),
        before_mlp=norm("post_attention_layernorm"),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=norm("norm"),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


shape = shape_of(read)


class Jais2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
