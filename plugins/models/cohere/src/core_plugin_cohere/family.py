"""Command R: attention and MLP side by side behind one layer norm without bias, interleaved rotary embeddings."""

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
    shape_of,
)


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "CohereForCausalLM")
    second = given.architecture.startswith("Cohere2")
    rope = given.rope(theta=10000.0 if second else 500000.0, interleaved=True)
    if second:
        given.refuse("use_qk_norm")
        every = given.integer("sliding_window_pattern", 4)
        kinds = given.kinds(lambda index: SLIDING if (index + 1) % every else FULL)
        window = given.window() if "sliding_window" in config else 4096
        # Layers that see everything do not know where it is.
        local = _layer(given, window=window, rope=None if window is None else rope)
        layers = tuple(local if kind == SLIDING else _layer(given) for kind in kinds)
    else:
        layers = (_layer(given, rope=rope),) * given.layers()
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=_norm(given, "norm"),
        max_positions=rope.context,
        dtype=given.dtype(),
        logit_scale=given.number("logit_scale", 0.0625),
        tied=given.flag("tie_word_embeddings", default=True),
    )


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=given.number("layer_norm_eps", 1e-5, least=0.0))


def _layer(given: Fields, **differing: Any) -> Layer:
    """Return a layer; `differing` are fields of its attention."""
    bias, size, normed = given.flag("attention_bias"), given.head_dim(), given.flag("use_qk_norm")
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            q_norm=HeadNorm(norm=_norm(given, "q_norm"), over="own") if normed else None,
            k_norm=HeadNorm(norm=_norm(given, "k_norm"), over="own") if normed else None,
            **differing,
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=_norm(given, "input_layernorm"),
        parallel=True,
    )


shape = shape_of(read)


class Cohere(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
