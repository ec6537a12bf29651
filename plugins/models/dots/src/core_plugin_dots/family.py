"""dots.llm1: Qwen3's attention; experts in groups, and shared ones, behind a few dense layers."""

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
    Norm,
    grouped_mixture,
    shape_of,
)

from core.api import MOST_LAYERS

_USUAL = {"sliding_window": 4096, "moe_intermediate_size": 1408}
"""Defaults of transformers for keys that a configuration lacks."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "Dots1ForCausalLM", {"n_routed_experts": "num_local_experts"})
    given.integer("n_shared_experts")  # it always has some
    eps, rope = given.number("rms_norm_eps", 1e-6, least=0.0), given.rope()
    full, dense = given.count("max_window_layers", 62, most=MOST_LAYERS), given.count("first_k_dense_replace", 0)
    mlp = MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu"))
    bias, size, mixture = given.flag("attention_bias"), given.head_dim(), grouped_mixture(given)
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
                q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps)),
                k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)),
                window=given.window() if kind == SLIDING else None,
            ),
            mlp=mlp if index < dense else mixture,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for index, kind in enumerate(given.kinds(lambda index: FULL if index < full else SLIDING))
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


shape = shape_of(read)


class Dots(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
