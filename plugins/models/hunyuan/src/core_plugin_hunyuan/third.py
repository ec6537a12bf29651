"""Hy-V3: mixtures of experts and a shared MLP behind a few dense layers; norms of queries and keys."""

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
    shape_of,
)

from core.api import CheckpointError, Routing, config_names

_USUAL = {"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072}
_THETA, _EPS = 11158840.0, 1e-20


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(
        {**_USUAL, **config},
        "HYV3ForCausalLM",
        {"moe_intermediate_size": "expert_hidden_dim", "num_experts": "num_local_experts"},
    )
    given.refuse("mlp_bias")
    given.expect("qk_norm", True)
    given.expect("route_norm", True)
    rope, size, eps = given.rope(theta=_THETA), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    bias = given.flag("attention_bias")
    attention = Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        bias=bias,
        output_bias=bias,
        rope=rope,
        q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps)),
        k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)),
    )
    dense = MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu"))
    mixture = _mixture(given)
    layers = tuple(
        Layer(
            attention=attention,
            mlp=mixture if sparse else dense,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for sparse in _sparse(given)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        skips=beyond(given, "num_nextn_predict_layers", 1),
    )


def _sparse(given: Fields) -> list[bool]:
    """Return which layers have experts: all but the first ones, or those that are named."""
    kinds, count = config_names(given.config, "mlp_layer_types"), given.layers()
    if kinds is None:
        return [index >= given.count("first_k_dense_replace", 1) for index in range(count)]
    if len(kinds) != count or not set(kinds) <= {"dense", "sparse"}:
        raise CheckpointError("CORE-M126", f"'mlp_layer_types' must name {count} layers as dense or sparse.")
    return [kind == "sparse" for kind in kinds]


def _mixture(given: Fields) -> Mixture:
    experts, size = given.integer("num_experts", 192), given.integer("moe_intermediate_size", 1536)
    activation = given.text("hidden_act", "silu")
    return Mixture(
        experts=experts,
        size=size,
        routing=Routing(
            top_k=given.integer("num_experts_per_tok", 8, most=experts),
            score="sigmoid",
            correction=True,
            renormalize=True,
            eps=_EPS,
            factor=given.number("router_scaling_factor", 2.826),
        ),
        activation=activation,
        router="router.gate",
        correction="expert_bias",
        # `enable_moe_fp32_combine` changes nothing: a sum of two numbers is rounded once either way.
        shared=MLP(size=given.integer("num_shared_experts", 1) * size, activation=activation, name="shared_mlp"),
    )


shape = shape_of(read)


class HunYuanThird(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
