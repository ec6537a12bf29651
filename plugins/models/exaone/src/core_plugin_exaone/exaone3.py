"""EXAONE 3, 3.5 and Deep: Llama's decoder with names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

_KEYS = {"num_hidden_layers": "num_layers"}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "ExaoneForCausalLM", _KEYS)
    rope, size, eps = given.rope(), given.head_dim(), given.number("layer_norm_epsilon", 1e-5, least=0.0)
    layer = Layer(
        attention=Attention(
            name="attn.attention",
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            output="out_proj",
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("activation_function", "silu"),
            gate="c_fc_0",
            up="c_fc_1",
            down="c_proj",
        ),
        before_attention=Norm(name="ln_1", eps=eps),
        before_mlp=Norm(name="ln_2", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="ln_f", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        root="transformer",
        layer="h.{}",
        embed="wte",
        tied=given.flag("tie_word_embeddings"),
        skips=("*.rotary.inv_freq",),
        layers_key="num_layers",
    )


shape = shape_of(read)


class Exaone(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
