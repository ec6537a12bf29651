"""MiniMax-M2: norms over all heads, a part of each head rotated, and a mixture of experts in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Mixture,
    Norm,
    beyond,
    shape_of,
)

from core.api import CheckpointError, RopeConfig, Routing

_USUAL = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 196608,
    "intermediate_size": 1536,
    "num_local_experts": 256,
    "num_experts_per_tok": 8,
}
"""Defaults of transformers for keys that a configuration lacks."""

_THETA = 5000000.0


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "MiniMaxM2ForCausalLM", {"num_local_experts": "num_experts"})
    _require_supported(given)
    rope, size, eps = _rope(given), given.head_dim(), given.number("rms_norm_eps", 1e-6, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            rope=rope,
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps), over="all"),
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps), over="all"),
        ),
        mlp=_mixture(given),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        skips=beyond(given, "num_mtp_modules"),
    )


def _require_supported(given: Fields) -> None:
    """Raise an error for keys that ask for another architecture."""
    given.refuse("shared_intermediate_size", "attention_bias")
    given.expect("scoring_func", "sigmoid")
    given.expect("use_routing_bias", True)
    given.expect("use_qk_norm", True)
    given.expect("qk_norm_type", "per_layer")
    kinds = given.flags("attn_type_list", given.layers())
    if kinds is not None and not all(kinds):
        raise CheckpointError("CORE-M126", "'attn_type_list' has layers that are not 1: linear attention.")


def _rope(given: Fields) -> RopeConfig:
    """Return the rotary embedding: `rotary_dim` of a head's dimensions are rotated."""
    if given.config.get("rotary_dim") is None:
        return given.rope(theta=_THETA)
    return given.rope(theta=_THETA, partial=given.integer("rotary_dim") / given.head_dim())


def _mixture(given: Fields) -> Mixture:
    experts = given.integer("num_local_experts")
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(
            top_k=given.integer("num_experts_per_tok", most=experts),
            score="sigmoid",
            correction=True,
            renormalize=True,
        ),
        activation=given.text("hidden_act", "silu"),
        name="block_sparse_moe",
        correction="e_score_correction_bias",
        parts=("w1", "w3"),
        down="w2",
    )


shape = shape_of(read)


class MiniMaxM2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
