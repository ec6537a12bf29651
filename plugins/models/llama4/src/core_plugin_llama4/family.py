"""Llama 4: experts that read weighed inputs, attention in chunks, and layers without rotation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    FULL,
    MLP,
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

from core.api import CheckpointError, RopeConfig, Routing, config_names, config_object

_CHUNKED = "chunked_attention"
_USUAL = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "attention_chunk_size": 8192,
    "intermediate_size": 8192,
    "intermediate_size_mlp": 16384,
}
"""Defaults of transformers for keys that a configuration lacks."""

_PARTS = ("gate_up_proj", "down_proj")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **_ramped(config)}, "Llama4ForCausalLM")
    rope, eps, count = given.rope(theta=500000.0, interleaved=True), _eps(given), given.layers()
    rotated, sparse = _rotated(given, count), _sparse(given, count)
    dense, mixture = _mlp(given, "intermediate_size_mlp", "feed_forward"), _mixture(given)
    stored = _PARTS if _fused(given) else ()
    layers = tuple(
        Layer(
            attention=_attention(given, rope if rotates else None, chunked=kind == _CHUNKED),
            mlp=mixture if index in sparse else dense,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        )
        for index, (rotates, kind) in enumerate(zip(rotated, _kinds(given, rotated), strict=True))
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        transposes=tuple(f"*.experts.*.{part}.weight" for part in stored),
        experts=tuple((f".experts.{part}", f".experts.{{}}.{part}.weight") for part in stored),
    )


def _ramped(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration whose rotary factors of long and of short waves differ: a step is the steepest ramp."""
    key = "rope_scaling" if config_object(config, "rope_scaling") else "rope_parameters"
    scaling = config_object(config, key)
    low, high = scaling.get("low_freq_factor"), scaling.get("high_freq_factor")
    if not isinstance(low, int | float) or low != high:
        return config
    return {**config, key: {**scaling, "high_freq_factor": math.nextafter(low, math.inf)}}


def _eps(given: Fields) -> float:
    return given.number("rms_norm_eps", 1e-5, least=0.0)


def _rotated(given: Fields, count: int) -> tuple[bool, ...]:
    """Return which layers rotate: those with a 1, or all but every so many-th."""
    every = given.integer("no_rope_layer_interval", 4)
    listed = given.flags("no_rope_layers", count) if given.config.get("no_rope_layers") else None
    return listed or tuple((index + 1) % every != 0 for index in range(count))


def _kinds(given: Fields, rotated: tuple[bool, ...]) -> tuple[str, ...]:
    """Return the kind of each layer's attention."""
    kinds = config_names(given.config, "layer_types")
    if kinds is None:
        return tuple(_CHUNKED if rotates else FULL for rotates in rotated)
    if len(kinds) != len(rotated) or not set(kinds) <= {_CHUNKED, FULL}:
        raise CheckpointError("CORE-M126", f"'layer_types' must name {len(rotated)} layers as {_CHUNKED} or {FULL}.")
    return kinds


def _sparse(given: Fields, count: int) -> frozenset[int]:
    """Return the layers with experts: those that are named, or every so many-th."""
    if given.config.get("moe_layers") is not None:
        return frozenset(given.integers("moe_layers"))
    every = given.integer("interleave_moe_layer_step", 1)
    return frozenset(range(every - 1, count, every))


def _attention(given: Fields, rope: RopeConfig | None, *, chunked: bool) -> Attention:
    size, bias = given.head_dim(), given.flag("attention_bias")
    norm, grows = None, None
    if rope is not None and given.flag("use_qk_norm", default=True):
        norm = HeadNorm(norm=Norm(name="qk_norm", eps=_eps(given), weight=False))
    if rope is None and given.flag("attn_temperature_tuning", default=True):
        grows = (given.number("attn_scale", 0.1), given.integer("floor_scale", 8192), 1)
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        bias=bias,
        output_bias=bias,
        rope=rope,
        rotates_first=True,
        q_norm=norm,
        k_norm=norm,
        chunk=given.window("attention_chunk_size") if chunked else None,
        grows=grows,
    )


def _mlp(given: Fields, size: str, name: str) -> MLP:
    return MLP(size=given.integer(size), activation=given.text("hidden_act", "silu"), name=name)


def _fused(given: Fields) -> bool:
    """Return whether a tensor holds gate and up of all experts; files of other layouts have the parts."""
    return given.flag("experts_fused", default=True)


def _mixture(given: Fields) -> Mixture:
    experts = given.integer("num_local_experts", 16)
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        # The choice is by the logits: sigmoids of the best experts may all be 1.
        routing=Routing(top_k=given.integer("num_experts_per_tok", 1, most=experts), score="sigmoid", chosen_only=True),
        activation=given.text("hidden_act", "silu"),
        name="feed_forward",
        router="router",
        parts=("gate_up_proj",) if _fused(given) else ("gate_proj", "up_proj"),
        fused="halves" if _fused(given) else None,
        shared=_mlp(given, "intermediate_size", "shared_expert"),
        weighs_input=True,
    )


shape = shape_of(read)


class Llama4(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
