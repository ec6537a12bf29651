"""gpt-oss: attention sinks, windows in every other layer, and a mixture of experts with biases in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import FULL, SLIDING, Attention, CausalLM, Decoder, Fields, Layer, Mixture, Norm, shape_of

from core.api import Routing
from core_plugin_gpt_oss.activation import ClampedSwiGLU

_USUAL = {
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "sliding_window": 128,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
}
"""Defaults of transformers for keys that a configuration lacks."""

_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""The rotary embedding of configurations that say nothing of one."""

_PARTS = ("gate_up_proj", "down_proj")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    if not config.get("rope_parameters") and not config.get("rope_scaling"):
        config = {**config, "rope_parameters": _ROPE}
    given = Fields({**_USUAL, **config}, "GptOssForCausalLM")
    rope, size, eps = given.rope(theta=150000.0), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
    bias, mixture = given.flag("attention_bias", default=True), _mixture(given)
    stored = _PARTS if _fused(given) else ()
    layers = tuple(
        Layer(
            attention=Attention(
                heads=given.heads(),
                kv_heads=given.kv_heads(),
                head_dim=size,
                scale=size**-0.5,
                bias=bias,
                output_bias=bias,
                rope=rope,
                window=given.window() if kind == SLIDING else None,
                sinks="sinks",
            ),
            mlp=mixture,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for kind in given.kinds(lambda index: FULL if index % 2 else SLIDING)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
        transposes=tuple(f"*.experts.*.{part}.weight" for part in stored),
        experts=tuple(
            (f".experts.{part}{ending}", f".experts.{{}}.{part}.{kind}")
            for part in stored
            for ending, kind in (("", "weight"), ("_bias", "bias"))
        ),
    )


def _fused(given: Fields) -> bool:
    """Return whether a tensor holds gate and up of all experts; files of other layouts have the parts."""
    return given.flag("experts_fused", default=True)


def _mixture(given: Fields) -> Mixture:
    given.expect("hidden_act", "silu")
    experts = given.integer("num_local_experts")
    alpha, limit = given.number("swiglu_alpha", 1.702), given.number("swiglu_limit", 7.0, least=0.0)
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(top_k=given.integer("num_experts_per_tok", most=experts), chosen_only=True),
        activation=lambda build, path: ClampedSwiGLU(alpha, limit, by_turns=_fused(given)),
        router="router",
        router_bias=True,
        parts=("gate_up_proj",) if _fused(given) else ("gate_proj", "up_proj"),
        fused="interleaved" if _fused(given) else None,
        bias=True,
    )


shape = shape_of(read)


class GptOss(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
