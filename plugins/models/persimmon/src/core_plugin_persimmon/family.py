"""Persimmon: norms of queries and keys, half of each head rotates, squared ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "PersimmonForCausalLM")
    rope, head_dim, normed = given.rope(partial=0.5), given.head_dim(), given.flag("qk_layernorm", default=True)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=head_dim,
            scale=head_dim**-0.5,
            fused="query_key_value",
            split="interleaved",
            output="dense",
            bias=True,
            output_bias=True,
            q_norm=HeadNorm(norm=_norm(given, "q_layernorm")) if normed else None,
            k_norm=HeadNorm(norm=_norm(given, "k_layernorm")) if normed else None,
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "relu2"),
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
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=_norm(given, "final_layernorm"),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        causal=given.causal,
        pooling=given.pooling(),
    )


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=given.number("layer_norm_eps", 1e-5, least=0.0), bias=True)


shape = shape_of(read)


class Persimmon(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
