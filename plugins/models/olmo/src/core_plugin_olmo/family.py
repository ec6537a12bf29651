"""OLMo: layer norms without weights (1); norms behind attention and MLP, and over all heads (2); with windows (3)."""

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

from core.api import RopeConfig

_EPS_WITHOUT_WEIGHTS = 1e-5
"""No key of OLMo 1 says it."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "OlmoForCausalLM")
    if given.architecture.startswith("Olmo3"):
        return _third(given)
    rope = given.rope()
    if given.architecture.startswith("Olmo2"):
        layers = (_normed_behind(given, rope, None),) * given.layers()
        return _decoder(given, layers, Norm(name="norm", eps=_eps(given)), rope.context)
    layers = (_first(given, rope),) * given.layers()
    return _decoder(given, layers, _weightless("norm"), rope.context)


def _decoder(given: Fields, layers: tuple[Layer, ...], last: Norm, context: int) -> Decoder:
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=last,
        max_positions=context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


def _weightless(name: str) -> Norm:
    return Norm(name=name, kind="layer", eps=_EPS_WITHOUT_WEIGHTS, weight=False)


def _eps(given: Fields) -> float:
    return given.number("rms_norm_eps", 1e-5, least=0.0)


def _mlp(given: Fields) -> MLP:
    return MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu"))


def _first(given: Fields, rope: RopeConfig) -> Layer:
    """Return a layer of OLMo 1."""
    bias, size = given.flag("attention_bias"), given.head_dim()
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            clip=given.maybe("clip_qkv"),
        ),
        mlp=_mlp(given),
        before_attention=_weightless("input_layernorm"),
        before_mlp=_weightless("post_attention_layernorm"),
    )


def _normed_behind(given: Fields, rope: RopeConfig, window: int | None) -> Layer:
    """Return a layer of OLMo 2 or 3."""
    bias, size, eps = given.flag("attention_bias"), given.head_dim(), _eps(given)
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps), over="all"),
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps), over="all"),
            window=window,
        ),
        mlp=_mlp(given),
        after_attention=Norm(name="post_attention_layernorm", eps=eps),
        after_mlp=Norm(name="post_feedforward_layernorm", eps=eps),
    )


def _third(given: Fields) -> Decoder:
    """Describe OLMo 3: three layers of four have a window, and its rotary embedding is never scaled."""
    kinds = given.kinds(lambda index: SLIDING if (index + 1) % 4 else FULL)
    full = given.rope(theta=500000.0, kind=FULL)
    made = {
        FULL: _normed_behind(given, full, None),
        SLIDING: _normed_behind(given, _unscaled(given), given.window() if "sliding_window" in given.config else 4096),
    }
    layers = tuple(made[kind] for kind in kinds)
    return _decoder(given, layers, Norm(name="norm", eps=_eps(given)), full.context)


def _unscaled(given: Fields) -> RopeConfig:
    """Return the rotary embedding of layers with a window."""
    newer = given.config.get("rope_parameters") or {}
    if isinstance(newer, Mapping) and SLIDING not in newer:
        newer = {key: newer[key] for key in ("rope_theta",) if key in newer}
    bare = {**given.config, "rope_scaling": None, "rope_parameters": newer}
    return Fields(bare, given.architecture).rope(theta=500000.0, kind=SLIDING)


shape = shape_of(read)


class Olmo(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
