"""Muse Glimmer: normalised embeddings, queries and keys, and gates behind attention."""

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

from core.api import CheckpointError, RopeConfig, config_object

DEFAULTS: Mapping[str, Any] = {
    "vocab_size": 202_048,
    "hidden_size": 6656,
    "intermediate_size": 19_968,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "sliding_window": 2048,
    "final_logit_softcapping": 20.0,
}
"""Values of keys that a configuration lacks, as transformers has them."""

_PERIOD = 4
"""One layer in so many sees the whole context, counted from the last."""

_VISION = ("vision_tower", "vision_encoder", "vision_adapter", "vision_projection", "perception_emb_norm")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = _fields(config)
    count, hidden = given.layers(), given.integer("hidden_size")
    kinds = given.kinds(lambda index: SLIDING if (count - 1 - index) % _PERIOD else FULL)
    rope = given.rope()
    made = {(kind, turns): _layer(given, kind, rope if turns else None) for kind in set(kinds) for turns in (0, 1)}
    eps = given.number("rms_norm_eps", 1e-5, least=0.0)
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=tuple(made[kind, turns] for kind, turns in zip(kinds, _rotations(given, rope), strict=True)),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        embed_norm=Norm(name="embed_norm", eps=eps, weight=False),
        tied=given.flag("tie_word_embeddings"),
        logit_scale=given.number("output_multiplier", (256 / 6656) ** 0.5),
        softcap=given.maybe("final_logit_softcapping"),
        renames=(("model.language_model.", "model."), ("language_model.", "model.")),
        skips=tuple(f"*{name}.*" for name in _VISION),
    )


shape = shape_of(read)


class MuseGlimmer(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _fields(config: Mapping[str, Any]) -> Fields:
    """Return the text decoder's configuration with what it lacks."""
    inner = {key: value for key, value in config_object(config, "text_config").items() if key != "architectures"}
    given = Fields({**DEFAULTS, **config, **inner}, "MuseGlimmerForCausalLM")
    given.refuse("attn_logit_softcapping", "use_bidirectional_attention")
    given.refuse("no_rope_layers", "output_soft_cap_temp", "scale_query_by")  # of earlier converters
    for key in ("use_qk_norm", "use_attn_output_gate", "normalize_tok_embeddings"):
        given.expect(key, True)
    if not any(given.config.get(key) for key in ("rope_parameters", "rope_scaling", "rope_theta")):
        raise CheckpointError("CORE-M126", "'rope_parameters' is missing.")
    return given


def _layer(given: Fields, kind: str, rope: RopeConfig | None) -> Layer:
    head_dim, bias, eps = given.head_dim(), given.flag("attention_bias"), given.number("rms_norm_eps", 1e-5, least=0.0)
    factor = given.number("qk_scale_factor", 3.87)
    if factor >= head_dim**0.5:
        text = f"'qk_scale_factor' is {factor:g}, which still lacks the factor 1 / sqrt(head_dim): not supported"
        raise CheckpointError("CORE-M126", f"{text}; divide it by {head_dim**0.5:g}.")
    behind = given.number("post_norm_eps", 1e-8, least=0.0)
    normed = HeadNorm(norm=Norm(name="qk_norm", eps=eps, weight=False))
    return Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=head_dim,
            scale=factor * head_dim**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            q_norm=normed,
            k_norm=normed,
            window=given.window() if kind == SLIDING else None,
            gate="gate_proj",
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_activation", "silu")),
        before_attention=_norm("input_layernorm", eps),
        after_attention=_norm("post_attention_layernorm", behind),
        before_mlp=_norm("pre_feedforward_layernorm", eps),
        after_mlp=_norm("post_feedforward_layernorm", behind),
    )


def _norm(name: str, eps: float) -> Norm:
    """Return a norm of a layer; checkpoints store how far each factor is from 1."""
    return Norm(name=name, eps=eps, offset=1.0)


def _rotations(given: Fields, rope: RopeConfig) -> list[bool]:
    """Return whether each layer rotates: `layer_rope_theta` gives the base, or 0 for none."""
    count, thetas = given.layers(), given.config.get("layer_rope_theta")
    if thetas is None:
        return [(count - 1 - index) % _PERIOD != 0 for index in range(count)]
    if not isinstance(thetas, list) or len(thetas) != count or not {*thetas} <= {0, rope.theta}:
        text = f"'layer_rope_theta' must give 0 or the base {rope.theta:g} for each of {count} layers."
        raise CheckpointError("CORE-M126", text)
    return [bool(theta) for theta in thetas]
