"""Qwen2-MoE and Qwen3-MoE: the decoders of Qwen2 and Qwen3, with mixtures of experts in some layers or all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    FULL,
    MLP,
    SLIDING,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Mixture,
    Norm,
    shape_of,
)

from core.api import MOST_LAYERS, Routing

_FIRST = {"num_experts_per_tok": 4, "num_experts": 60, "moe_intermediate_size": 1408}
_SECOND = {"num_experts_per_tok": 8, "num_experts": 128, "moe_intermediate_size": 768}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    third = Fields(config, "Qwen3MoeForCausalLM").architecture.startswith("Qwen3")
    given = Fields(
        {**(_SECOND if third else _FIRST), **config}, "Qwen3MoeForCausalLM", {"num_experts": "num_local_experts"}
    )
    eps, rope = given.number("rms_norm_eps", 1e-6, least=0.0), given.rope()
    full = int(given.number("max_window_layers", 28, least=0, most=MOST_LAYERS))
    window = given.window() if given.flag("use_sliding_window") else None
    kinds = given.kinds(lambda index: FULL if index < full else SLIDING)
    sparse = _sparse(given)
    layers = tuple(
        Layer(
            attention=_attention(given, third, window if kind == SLIDING else None, eps),
            mlp=_mixture(given, third) if index in sparse else _mlp(given, given.integer("intermediate_size")),
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for index, kind in enumerate(kinds)
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
    )


shape = shape_of(read)


class QwenMoE(CausalLM):
    """The architectures."""

    describe = staticmethod(read)


def _sparse(given: Fields) -> frozenset[int]:
    """Return the layers with experts: every so many-th, but for those that are named."""
    every, dense = given.integer("decoder_sparse_step", 1), given.integers("mlp_only_layers")
    return frozenset(index for index in range(given.layers()) if index not in dense and (index + 1) % every == 0)


def _attention(given: Fields, third: bool, window: int | None, eps: float) -> Attention:
    bias = given.flag("attention_bias") if third else given.flag("qkv_bias", default=True)
    norms = {name: HeadNorm(norm=Norm(name=name, eps=eps)) for name in ("q_norm", "k_norm")} if third else {}
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=given.head_dim(),
        scale=given.head_dim() ** -0.5,
        bias=bias,
        output_bias=bias and third,
        rope=given.rope(),
        window=window,
        **norms,
    )


def _mlp(given: Fields, size: int, name: str = "mlp") -> MLP:
    return MLP(size=size, activation=given.text("hidden_act", "silu"), name=name)


def _mixture(given: Fields, third: bool) -> Mixture:
    shared = None
    if not third:
        shared = _mlp(given, given.integer("shared_expert_intermediate_size", 5632), "shared_expert")
    return Mixture(
        experts=given.integer("num_experts"),
        size=given.integer("moe_intermediate_size"),
        routing=Routing(top_k=given.integer("num_experts_per_tok"), renormalize=given.flag("norm_topk_prob")),
        activation=given.text("hidden_act", "silu"),
        shared=shared,
        shared_gate=None if third else "shared_expert_gate",
    )
