"""OLMoE and FlexOLMo: OLMo's decoders of the first and of the second kind, with mixtures of experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Mixture, Norm, shape_of

from core.api import RopeConfig, Routing

_FIRST = {"num_experts": 64, "num_experts_per_tok": 8, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
_FLEX = {"num_experts": 7, "num_experts_per_tok": 5, "rms_norm_eps": 1e-6, "rope_theta": 500000.0}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    flex = Fields(config, "OlmoeForCausalLM").architecture.startswith("Flex")
    usual = _FLEX if flex else _FIRST
    given = Fields({**usual, **config}, "OlmoeForCausalLM", {"num_experts": "num_local_experts"})
    rope, eps = given.rope(theta=usual["rope_theta"]), given.number("rms_norm_eps", 1e-5, least=0.0)
    if flex:
        given.refuse("clip_qkv")
    # Both call the norm between attention and experts alike; one has it behind the attention, the other before these.
    between, behind = Norm(name="post_attention_layernorm", eps=eps), Norm(name="post_feedforward_layernorm", eps=eps)
    layer = Layer(
        attention=_attention(given, rope, eps),
        mlp=_mixture(given),
        before_attention=None if flex else Norm(name="input_layernorm", eps=eps),
        after_attention=between if flex else None,
        before_mlp=None if flex else between,
        after_mlp=behind if flex else None,
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


def _attention(given: Fields, rope: RopeConfig, eps: float) -> Attention:
    bias, size = given.flag("attention_bias"), given.head_dim()
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        bias=bias,
        output_bias=bias,
        rope=rope,
        q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps), over="all"),
        k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps), over="all"),
        clip=given.maybe("clip_qkv"),
        clips_normed=True,
    )


def _mixture(given: Fields) -> Mixture:
    experts = given.integer("num_experts")
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(
            top_k=given.integer("num_experts_per_tok", most=experts), renormalize=given.flag("norm_topk_prob")
        ),
        activation=given.text("hidden_act", "silu"),
    )


shape = shape_of(read)


class OlmoMoE(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
