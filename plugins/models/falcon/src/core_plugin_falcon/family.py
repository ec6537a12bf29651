"""Falcon: attention and MLP side by side or in turn, rotary embeddings or ALiBi, few heads of keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, alibi_slopes, shape_of

_KEYS = {
    "hidden_size": "n_embed",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": "num_kv_heads",
    "intermediate_size": "ffn_hidden_size",
    "hidden_act": "activation",
}
"""`n_layer` and `n_head` are what the first checkpoints (`RWForCausalLM`) have."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    if "n_head_kv" in config:
        # What the first checkpoints of 40B say instead.
        config = {**config, "num_kv_heads": config["n_head_kv"], "new_decoder_architecture": True}
    given = Fields(config, "FalconForCausalLM", _KEYS)
    given.refuse("apply_residual_connection_post_layernorm")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(_layer(given),) * given.layers(),
        final_norm=_norm(given, "ln_f"),
        max_positions=given.positions() if given.flag("alibi") else given.rope().context,
        dtype=given.dtype(),
        root="transformer",
        layer="h.{}",
        embed="word_embeddings",
        tied=given.flag("tie_word_embeddings", default=True),
        causal=given.causal,
        pooling=given.pooling(),
        layers_key=given.key("num_hidden_layers"),
    )


def _layer(given: Fields) -> Layer:
    newer, bias = given.flag("new_decoder_architecture"), given.flag("bias")
    parallel = newer or given.flag("parallel_attn", default=True)
    apart = newer and given.integer("num_ln_in_parallel_attn", 2, most=2) == 2
    before_mlp = "ln_mlp" if apart else None if parallel else "post_attention_layernorm"
    return Layer(
        attention=_attention(given, newer, bias),
        mlp=MLP(
            size=given.integer("intermediate_size", 4 * given.integer("hidden_size")),
            activation=given.text("hidden_act", "gelu"),
            gate=None,
            up="dense_h_to_4h",
            down="dense_4h_to_h",
            bias=bias,
            down_bias=bias,
        ),
        before_attention=_norm(given, "ln_attn" if apart else "input_layernorm"),
        before_mlp=None if before_mlp is None else _norm(given, before_mlp),
        parallel=parallel,
    )


def _attention(given: Fields, newer: bool, bias: bool) -> Attention:
    heads, head_dim, alibi = given.heads(), given.head_dim(), given.flag("alibi")
    scale = head_dim**-0.5
    kv_heads = given.kv_heads() if newer else 1 if given.flag("multi_query", default=True) else heads
    return Attention(
        name="self_attention",
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=scale,
        fused="query_key_value",
        split="interleaved",
        output="dense",
        bias=bias,
        output_bias=bias,
        rope=None if alibi else given.rope(),
        # Falcon scales the scores together with what ALiBi adds.
        slopes=tuple(slope * scale for slope in alibi_slopes(heads)) if alibi else None,
    )


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=given.number("layer_norm_epsilon", 1e-5, least=0.0), bias=True)


shape = shape_of(read)


class Falcon(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
