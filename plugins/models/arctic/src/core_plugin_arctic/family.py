"""Arctic: a dense MLP behind the attention, and beside both a mixture of experts of what came into the layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Mixture, Norm, shape_of

from core.api import Routing


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "ArcticForCausalLM")
    given.refuse("sliding_window", "quantization", "attention_bias")
    rope, size, eps = given.rope(theta=1e6), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    attention = Attention(heads=given.heads(), kv_heads=given.kv_heads(), head_dim=size, scale=size**-0.5, rope=rope)
    every = given.integer("moe_layer_frequency", 2)
    layers = tuple(_layer(given, attention, eps, sparse=(index + 1) % every == 0) for index in range(given.layers()))
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


def _layer(given: Fields, attention: Attention, eps: float, *, sparse: bool) -> Layer:
    around = sparse and given.flag("use_residual", default=given.flag("parallel_attn_mlp_res"))
    return Layer(
        attention=attention,
        mlp=_mixture(given) if sparse else _mlp(given, "block_sparse_moe.mlp", given.integer("intermediate_size")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        beside=_mlp(given, "residual_mlp", given.integer("hidden_size")) if around else None,
        before_beside=Norm(name="residual_layernorm", eps=eps) if around else None,
    )


def _mlp(given: Fields, name: str, size: int) -> MLP:
    activation = given.text("hidden_act", "silu")
    return MLP(size=size, activation=activation, name=name, gate="w1", up="w3", down="w2")


def _mixture(given: Fields) -> Mixture:
    experts = given.integer("num_local_experts", 8)
    top_k = given.integer("num_experts_per_tok", 1, most=experts)
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(top_k=top_k, renormalize=top_k > 1),
        activation=given.text("hidden_act", "silu"),
        name="block_sparse_moe",
        parts=("w1", "w3"),
        down="w2",
    )


shape = shape_of(read)


class Arctic(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
