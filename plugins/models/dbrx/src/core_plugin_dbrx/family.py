"""DBRX: clipped projections, layer norms without biases, and a mixture of experts in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, Mixture, Norm, shape_of

from core.api import RopeConfig, Routing, config_object

_KEYS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "kv_n_heads",
    "max_position_embeddings": "max_seq_len",
}
_USUAL = {"d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048, "vocab_size": 32000}
_OF_ATTENTION = {"kv_n_heads": 1}
_OF_EXPERTS = {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1, "moe_normalize_expert_weights": 1.0}
"""Defaults of transformers for keys that a configuration lacks."""

_EPS = 1e-5


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    attention = {**_OF_ATTENTION, **config_object(config, "attn_config")}
    given = Fields({**_USUAL, **config, "kv_n_heads": attention["kv_n_heads"]}, "DbrxForCausalLM", _KEYS)
    given.refuse("tie_word_embeddings")
    experts = Fields({**_OF_EXPERTS, **config_object(config, "ffn_config")})
    rope, mixture = _rope(given, attention), _mixture(experts)
    layer = Layer(
        attention=_attention(given, Fields(attention), rope),
        mlp=mixture,
        before_attention=_norm("norm_attn_norm.norm_1"),
        before_mlp=_norm("norm_attn_norm.norm_2"),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=_norm("norm_f"),
        max_positions=rope.context,
        dtype=given.dtype(),
        root="transformer",
        layer="blocks.{}",
        embed="wte",
        # Files of other layouts have the experts' matrices outputs first.
        transposes=("*.experts.mlp.*.w2.weight",) if given.flag("experts_fused", default=True) else (),
        experts=tuple(
            (f".experts.mlp.{part}", f".experts.mlp.{{}}.{part}.weight", mixture.experts) for part in ("w1", "v1", "w2")
        ),
        layers_key=given.key("num_hidden_layers"),
    )


def _norm(name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=_EPS)


def _rope(given: Fields, attention: Mapping[str, Any]) -> RopeConfig:
    """Return the rotary embedding, whose base older configurations have among the keys of attention."""
    base = given.config.get("rope_theta", attention.get("rope_theta"))
    return Fields({**given.config, "rope_theta": base}, given.architecture, _KEYS).rope()


def _attention(given: Fields, own: Fields, rope: RopeConfig) -> Attention:
    return Attention(
        name="norm_attn_norm.attn",
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=given.head_dim(),
        scale=given.head_dim() ** -0.5,
        fused="Wqkv",
        output="out_proj",
        rope=rope,
        clip=own.maybe("clip_qkv"),
    )


def _mixture(given: Fields) -> Mixture:
    # Shares are not below 0: their norm of order 1 is their sum.
    given.expect("moe_normalize_expert_weights", 1)
    experts = given.integer("moe_num_experts")
    return Mixture(
        experts=experts,
        size=given.integer("ffn_hidden_size"),
        routing=Routing(
            top_k=given.integer("moe_top_k", most=experts),
            renormalize=given.config["moe_normalize_expert_weights"] is not None,
        ),
        activation=str(config_object(given.config, "ffn_act_fn").get("name", "silu")),
        name="ffn",
        router="router.layer",
        module="experts.mlp",
        parts=("w1", "v1"),
        down="w2",
    )


shape = shape_of(read)


class Dbrx(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
