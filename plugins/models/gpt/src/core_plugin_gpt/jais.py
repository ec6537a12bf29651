"""Jais: GPT-2 with ALiBi, a gated MLP, and the factors of maximal update parametrization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, alibi_slopes, shape_of

from core.api import CheckpointError
from core_plugin_gpt.usual import KEYS, TRANSPOSED, decoder_of, layer_norm, wide


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "JAISLMHeadModel", KEYS)
    given.refuse("add_cross_attention", "alibi_scaling")
    if given.text("position_embedding_type", "learned") != "alibi":
        raise CheckpointError("CORE-M126", "'position_embedding_type' must be alibi; others are not supported.")
    # `width_scale` and `embeddings_scale` are what older checkpoints call the factors.
    logits = given.number("mup_width_scale", 1.0) * given.number("mup_output_alpha", 1.0)
    return decoder_of(
        given,
        [_layer(given, index) for index in range(given.layers())],
        learned=False,
        transposes=TRANSPOSED,
        embed_scale=given.number("embeddings_scale", given.number("mup_embeddings_scale", 1.0)),
        logit_scale=given.number("width_scale", logits),
    )


def _layer(given: Fields, index: int) -> Layer:
    heads, head_dim = given.heads(), given.head_dim()
    scale = 1.0
    if given.flag("scale_attn_weights", default=True):
        scale = head_dim ** (-1.0 if given.flag("mup_scale_qk_dot_prod") else -0.5)
    if given.flag("scale_attn_by_inverse_layer_idx"):
        scale /= index + 1
    return Layer(
        attention=Attention(
            name="attn",
            heads=heads,
            kv_heads=heads,
            head_dim=head_dim,
            scale=scale,
            fused="c_attn",
            output="c_proj",
            bias=True,
            output_bias=True,
            slopes=alibi_slopes(heads),
        ),
        mlp=_mlp(given),
        before_attention=layer_norm(given, "ln_1"),
        before_mlp=layer_norm(given, "ln_2"),
    )


def _mlp(given: Fields) -> MLP:
    mlp = wide(given, ("c_fc", "c_proj"))
    return replace(mlp, gate="c_fc2", activation="silu") if mlp.activation == "swiglu" else mlp


shape = shape_of(read)


class Jais(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
