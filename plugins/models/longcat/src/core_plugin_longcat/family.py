"""LongCat-Flash: layers of two latent attentions and two MLPs, with a mixture of experts as a shortcut over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import MLP, CausalLM, Decoder, Fields, LatentAttention, Layer, Mixture, Norm, shape_of

from core.api import Routing
from core_plugin_longcat.numbers import globs

_KEYS = {
    "num_hidden_layers": "num_layers",
    "intermediate_size": "ffn_hidden_size",
    "moe_intermediate_size": "expert_ffn_hidden_size",
    "num_experts_per_tok": "moe_topk",
}
_USUAL: Mapping[str, Any] = {
    "vocab_size": 131072,
    "hidden_size": 6144,
    "num_layers": 28,
    "num_attention_heads": 64,
    "max_position_embeddings": 131072,
    "ffn_hidden_size": 12288,
    "expert_ffn_hidden_size": 2048,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_topk": 12,
    "n_routed_experts": 512,
    "zero_expert_num": 256,
    "routed_scaling_factor": 6.0,
    "rope_theta": 1e7,
    "rms_norm_eps": 1e-5,
}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "LongcatFlashForCausalLM", _KEYS)
    given.refuse("router_bias", "norm_topk_prob")
    given.expect("zero_expert_type", "identity")
    given.expect("attention_method", "MLA")
    attention, mixture = _attention(given), _mixture(given)
    layer = replace(_half(given, attention, 0), second=_half(given, attention, 1), aside=mixture)
    first, count = mixture.experts, mixture.identities
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=given.number("rms_norm_eps", 1e-5, least=0.0)),
        max_positions=attention.rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        # transformers stores weights of experts that do not use them.
        skips=("model.mtp.*", *(f"model.layers.*.mlp.experts.{glob}.*" for glob in globs(first, first + count))),
        layers_key=given.key("num_hidden_layers"),
    )


def _half(given: Fields, attention: LatentAttention, half: int) -> Layer:
    """Return one of the two layers of a layer's modules."""
    eps, activation = given.number("rms_norm_eps", 1e-5, least=0.0), given.text("hidden_act", "silu")
    return Layer(
        attention=replace(attention, name=f"self_attn.{half}"),
        mlp=MLP(size=given.integer("intermediate_size"), activation=activation, name=f"mlps.{half}"),
        before_attention=Norm(name=f"input_layernorm.{half}", eps=eps),
        before_mlp=Norm(name=f"post_attention_layernorm.{half}", eps=eps),
    )


def _attention(given: Fields) -> LatentAttention:
    """Return the attention; what is made of latents is scaled as if they were as large as the hidden state."""
    attention, hidden = given.latent(_USUAL, interleaved=True), given.integer("hidden_size")
    queries = given.integer("q_lora_rank")
    if given.flag("mla_scale_q_lora", default=True):
        attention = replace(attention, scale=attention.scale * (hidden / queries) ** 0.5)
    if given.flag("mla_scale_kv_lora", default=True):
        attention = replace(attention, latent_scale=(hidden / attention.latent_dim) ** 0.5)
    return attention


def _mixture(given: Fields) -> Mixture:
    experts, identities = given.integer("n_routed_experts"), given.count("zero_expert_num", 0)
    return Mixture(
        experts=experts,
        size=given.integer("moe_intermediate_size"),
        routing=Routing(
            top_k=given.integer("num_experts_per_tok", most=experts + identities),
            correction=True,
            factor=given.number("routed_scaling_factor", 1.0),
        ),
        activation=given.text("hidden_act", "silu"),
        router="router.classifier",
        correction="router.e_score_correction_bias",
        identities=identities,
    )


shape = shape_of(read)


class LongcatFlash(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
