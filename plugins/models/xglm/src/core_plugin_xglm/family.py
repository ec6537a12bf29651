"""XGLM: sinusoidal positions, a scaled embedding, layer norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

_KEYS = {
    "hidden_size": "d_model",
    "intermediate_size": "ffn_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "attention_heads",
    "hidden_act": "activation_function",
}
_OFFSET = 2
"""Row of position 0 in the table of positions: padding has those before."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "XGLMForCausalLM", _KEYS)
    given.refuse("add_cross_attention")
    hidden, head_dim = given.integer("hidden_size"), given.head_dim()
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=head_dim,
            scale=head_dim**-0.5,
            output="out_proj",
            bias=True,
            output_bias=True,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "gelu"),
            name="",
            gate=None,
            up="fc1",
            down="fc2",
            bias=True,
            down_bias=True,
        ),
        before_attention=_norm("self_attn_layer_norm"),
        before_mlp=_norm("final_layer_norm"),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(layer,) * given.layers(),
        final_norm=_norm("layer_norm"),
        max_positions=given.positions(),
        dtype=given.dtype("float32"),
        embed_scale=hidden**0.5 if given.flag("scale_embedding", default=True) else 1.0,
        sinusoid=_OFFSET,
        tied=given.flag("tie_word_embeddings", default=True),
        causal=given.causal,
        pooling=given.pooling(),
        skips=("*.embed_positions.weights",),
        layers_key=given.key("num_hidden_layers"),
    )


def _norm(name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=1e-5, bias=True)


shape = shape_of(read)


class XGLM(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
