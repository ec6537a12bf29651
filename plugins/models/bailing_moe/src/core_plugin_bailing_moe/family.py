"""Ling, first and second version: experts and shared ones behind a few dense layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Mixture,
    Norm,
    beyond,
    grouped_routing,
    shape_of,
)

from core.api import RopeConfig, Routing


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "BailingMoeForCausalLM")
    given.refuse("norm_head", "norm_softmax", "use_bias", "use_sliding_window", "multi_gate")
    eps, dense = given.number("rms_norm_eps", 1e-6, least=0.0), given.count("first_k_dense_replace", 0)
    rope, mixture = _rope(given), _mixture(given)
    mlp, attention = _mlp(given, given.integer("intermediate_size"), "mlp"), _attention(given, rope, eps)
    layers = tuple(
        Layer(
            attention=attention,
            mlp=mlp if index < dense else mixture,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for index in range(given.layers())
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        embed="word_embeddings",
        tied=given.flag("tie_word_embeddings"),
        skips=beyond(given, "num_nextn_predict_layers"),
    )


def _rope(given: Fields) -> RopeConfig:
    """Return the rotary embedding: `rotary_dim`, or a share, of a head's dimensions are rotated."""
    if given.config.get("rotary_dim") is None:
        return given.rope()
    share = given.integer("rotary_dim") / given.head_dim()
    return Fields({**given.config, "partial_rotary_factor": share}, given.architecture).rope()


def _attention(given: Fields, rope: RopeConfig, eps: float) -> Attention:
    size, normed = given.head_dim(), given.flag("use_qk_norm")
    if normed:
        given.expect("use_rmsnorm", True)
    return Attention(
        name="attention",
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        # Files of other layouts have the parts.
        fused="query_key_value" if given.flag("qkv_fused", default=True) else None,
        output="dense",
        bias=given.flag("use_qkv_bias"),
        rope=rope,
        q_norm=HeadNorm(norm=Norm(name="query_layernorm", eps=eps)) if normed else None,
        k_norm=HeadNorm(norm=Norm(name="key_layernorm", eps=eps)) if normed else None,
    )


def _mlp(given: Fields, size: int, name: str) -> MLP:
    return MLP(size=size, activation=given.text("hidden_act", "silu"), name=name)


def _mixture(given: Fields) -> Mixture:
    experts, size = given.integer("num_experts"), given.integer("moe_intermediate_size")
    corrected, shared = given.flag("moe_router_enable_expert_bias"), given.count("num_shared_experts", 0)
    given.expect("score_function", "sigmoid" if corrected else "softmax")
    inner = given.integer("moe_shared_expert_intermediate_size", size)
    return Mixture(
        experts=experts,
        size=size,
        routing=grouped_routing(given, experts) if corrected else _softmax(given, experts),
        activation=given.text("hidden_act", "silu"),
        correction="gate.expert_bias" if corrected else None,
        shared=_mlp(given, shared * inner, "shared_experts") if shared else None,
    )


def _softmax(given: Fields, experts: int) -> Routing:
    """Return how experts are chosen by their shares alone."""
    given.expect("n_group", 1)
    return Routing(
        top_k=given.integer("num_experts_per_tok", most=experts),
        renormalize=given.flag("norm_topk_prob"),
        factor=given.number("routed_scaling_factor", 1.0),
    )


shape = shape_of(read)


class BailingMoE(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
