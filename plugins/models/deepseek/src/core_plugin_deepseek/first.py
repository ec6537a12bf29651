"""The first DeepSeek-MoE: Llama's attention, experts behind some dense layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, shape_of

from core.api import Routing
from core_plugin_deepseek.parts import decoder_of, mixture

_USUAL: Mapping[str, Any] = {"first_k_dense_replace": 0, "moe_intermediate_size": 1407}
"""Defaults of its makers' code for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "DeepseekForCausalLM")
    given.expect("scoring_func", "softmax")
    rope, bias = given.rope(), given.flag("attention_bias")
    attention = Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=given.head_dim(),
        scale=given.head_dim() ** -0.5,
        bias=bias,
        output_bias=bias,
        rope=rope,
    )
    routing = Routing(top_k=given.integer("num_experts_per_tok"), renormalize=given.flag("norm_topk_prob"), eps=1e-20)
    # A checkpoint without experts is the dense DeepSeek LLM under this name.
    experts = None if given.config.get("n_routed_experts") is None else mixture(given, routing)
    return decoder_of(given, (attention,) * given.layers(), experts, rope.context)


shape = shape_of(read)


class DeepSeekMoE(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
