"""Nemotron: layer norms that multiply by `1 + weight`, an MLP of the squared relu, half of each head rotated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "NemotronForCausalLM")
    # Older configurations have one of the last two keys.
    partial = given.number("rope_percent", given.number("rope_percentage", 0.5), least=0.0, most=1.0)
    rope, bias, size = given.rope(partial=partial), given.flag("attention_bias"), given.head_dim()

    def norm(name: str) -> Norm:
        eps = given.number("norm_eps", 1e-5, least=0.0)
        return Norm(name=name, kind="layer", eps=eps, bias=True, offset=1.0)

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
            bias=given.flag("mlp_bias"),
            down_bias=given.flag("mlp_bias"),
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
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class Nemotron(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
