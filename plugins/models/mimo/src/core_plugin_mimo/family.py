"""MiMo-V2-Flash: smaller heads of values, windows with sinks and more heads of keys, experts behind a dense layer."""

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
    Layer,
    Norm,
    grouped_mixture,
    shape_of,
)

from core.api import CheckpointError, RopeConfig, config_names

_USUAL = {
    "num_key_value_heads": 4,
    "head_dim": 192,
    "v_head_dim": 128,
    "max_position_embeddings": 131072,
    "attention_value_scale": 0.707,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "norm_topk_prob": True,
}
"""Defaults of transformers for keys that a configuration lacks."""

_PERIOD, _WINDOW = 6, 129
_THETA = {FULL: 5000000.0, SLIDING: 10000.0}
_SHARE = 0.334
"""Of each head that is rotated."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    keys = {"rms_norm_eps": "layernorm_epsilon", "n_routed_experts": "num_local_experts"}
    given = Fields({**_USUAL, **config}, "MiMoV2FlashForCausalLM", keys)
    _require_alike(given)
    eps, count = given.number("rms_norm_eps", 1e-5, least=0.0), given.layers()
    kinds, mixture = _kinds(given, count), grouped_mixture(given)
    dense = MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu"))
    attention = {kind: _attention(given, kind) for kind in set(kinds)}
    layers = tuple(
        Layer(
            attention=attention[kind],
            mlp=mixture if sparse else dense,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for kind, sparse in zip(kinds, _sparse(given, count), strict=True)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=_rope(given, FULL).context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        skips=("model.mtp.*",),
    )


def _require_alike(given: Fields) -> None:
    """Raise an error where layers with windows have other heads than the rest, but for those of keys and values."""
    given.refuse("add_full_attention_sink_bias", "n_shared_experts")
    given.expect("add_swa_attention_sink_bias", True)
    given.expect("swa_num_attention_heads", given.heads())
    given.expect("swa_head_dim", given.head_dim())
    given.expect("swa_v_head_dim", given.integer("v_head_dim"))
    given.expect("attention_projection_layout", "split")


def _kinds(given: Fields, count: int) -> tuple[str, ...]:
    """Return the kind of each layer: the makers' list has ones for windows."""
    windows = given.flags("hybrid_layer_pattern", count)
    if windows is not None and given.config.get("layer_types") is None:
        return tuple(SLIDING if one else FULL for one in windows)
    return given.kinds(lambda index: SLIDING if index and (index + 1) % _PERIOD else FULL)


def _sparse(given: Fields, count: int) -> tuple[bool, ...]:
    """Return which layers have experts: all but the first one, or as one of two lists says."""
    kinds = config_names(given.config, "mlp_layer_types")
    if kinds is None:
        return given.flags("moe_layer_freq", count) or tuple(index > 0 for index in range(count))
    if len(kinds) != count or not set(kinds) <= {"dense", "sparse"}:
        raise CheckpointError("CORE-M126", f"'mlp_layer_types' must name {count} layers as dense or sparse.")
    return tuple(kind == "sparse" for kind in kinds)


def _rope(given: Fields, kind: str) -> RopeConfig:
    """Return the rotary embedding of a kind of layers, each of which has a base of its own."""
    base = given.config.get("swa_rope_theta") if kind == SLIDING else given.config.get("rope_theta")
    own = Fields({**given.config, "rope_theta": base}, given.architecture)
    return own.rope(theta=_THETA[kind], partial=_SHARE, kind=kind)


def _attention(given: Fields, kind: str) -> Attention:
    sliding, size, kv_heads = kind == SLIDING, given.head_dim(), given.kv_heads()
    window = given.window() or _WINDOW
    if given.config.get("sliding_window_size") is not None:
        window = given.integer("sliding_window_size") + 1  # it counts the tokens before a query
    return Attention(
        heads=given.heads(),
        kv_heads=given.integer("swa_num_key_value_heads", 2 * kv_heads) if sliding else kv_heads,
        head_dim=size,
        scale=size**-0.5,
        bias=given.flag("attention_bias"),
        rope=_rope(given, kind),
        window=window if sliding else None,
        sinks="attention_sink_bias" if sliding else None,
        value_dim=given.integer("v_head_dim", most=size),
        value_scale=given.number("attention_value_scale", 1.0),
    )


shape = shape_of(read)


class MiMoV2(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
