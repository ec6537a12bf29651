"""Starcoder2: layer norms, an MLP without a gate, perhaps a window in all layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "Starcoder2ForCausalLM")
    rope, bias, size = given.rope(), given.flag("use_bias", default=True), given.head_dim()

    def norm(name: str) -> Norm:
        return Norm(name=name, kind="layer", eps=given.number("norm_epsilon", 1e-5, least=0.0), bias=True)

    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(2),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            window=given.window(),
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "gelu_pytorch_tanh"),
            gate=None,
            up="c_fc",
            down="c_proj",
            bias=bias,
            down_bias=bias,
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
        tied=given.flag("tie_word_embeddings", default=True),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class Starcoder2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
