"""OPT (and Galactica): learned positions with an offset; norms before or behind attention and MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Learned, Norm, shape_of

_KEYS = {"intermediate_size": "ffn_dim", "hidden_act": "activation_function"}
_OFFSET = 2
"""Rows of the table of positions before that of position 0: padding had some of them."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "OPTForCausalLM", _KEYS)
    before, positions = given.flag("do_layer_norm_before", default=True), given.positions()
    hidden, width = given.integer("hidden_size"), given.integer("word_embed_proj_dim", given.integer("hidden_size"))
    ends = before and not given.flag("_remove_final_layer_norm")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(_layer(given, before),) * given.layers(),
        final_norm=_norm(given, "final_layer_norm") if ends else None,
        max_positions=positions,
        dtype=given.dtype("float16"),
        root="model.decoder",
        embed_size=None if width == hidden else width,
        learned=Learned(name="embed_positions", rows=positions + _OFFSET, offset=_OFFSET),
        tied=given.flag("tie_word_embeddings", default=True),
        causal=given.causal,
        pooling=given.pooling(),
        renames=(("decoder.", "model.decoder."),),
    )


def _norm(given: Fields, name: str) -> Norm:
    weight = given.flag("layer_norm_elementwise_affine", default=True)
    return Norm(name=name, kind="layer", eps=1e-5, weight=weight, bias=weight)


def _layer(given: Fields, before: bool) -> Layer:
    bias, head_dim = given.flag("enable_bias", default=True), given.head_dim()
    attention_norm, mlp_norm = _norm(given, "self_attn_layer_norm"), _norm(given, "final_layer_norm")
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=head_dim,
            scale=head_dim**-0.5,
            output="out_proj",
            bias=bias,
            output_bias=bias,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "relu"),
            name="",
            gate=None,
            up="fc1",
            down="fc2",
            bias=bias,
            down_bias=bias,
        ),
        before_attention=attention_norm if before else None,
        after_attention=None if before else attention_norm,
        before_mlp=mlp_norm if before else None,
        after_mlp=None if before else mlp_norm,
        closing=not before,
    )


shape = shape_of(read)


class OPT(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
