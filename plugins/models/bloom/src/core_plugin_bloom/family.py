"""BLOOM: ALiBi, a norm of the embedding, queries, keys and values head by head in one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, alibi_slopes, shape_of

_KEYS = {
    "hidden_size": "n_embed",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "seq_length",
}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "BloomForCausalLM", _KEYS)
    given.refuse("apply_residual_connection_post_layernorm")
    heads, head_dim, hidden = given.heads(), given.head_dim(), given.integer("hidden_size")
    layer = Layer(
        attention=Attention(
            name="self_attention",
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            fused="query_key_value",
            split="interleaved",
            output="dense",
            bias=True,
            output_bias=True,
            slopes=alibi_slopes(heads),
        ),
        mlp=MLP(
            size=4 * hidden,
            activation="gelu_pytorch_tanh",
            gate=None,
            up="dense_h_to_4h",
            down="dense_4h_to_h",
            bias=True,
            down_bias=True,
        ),
        before_attention=_norm(given, "input_layernorm"),
        before_mlp=_norm(given, "post_attention_layernorm"),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(layer,) * given.layers(),
        final_norm=_norm(given, "ln_f"),
        # ALiBi knows no longest context: this is that of the training.
        max_positions=given.positions(),
        dtype=given.dtype(),
        root="transformer",
        layer="h.{}",
        embed="word_embeddings",
        embed_norm=_norm(given, "word_embeddings_layernorm"),
        tied=given.flag("tie_word_embeddings", default=True),
        causal=given.causal,
        pooling=given.pooling(),
        layers_key=given.key("num_hidden_layers"),
    )


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=given.number("layer_norm_epsilon", 1e-5, least=0.0), bias=True)


shape = shape_of(read)


class Bloom(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
