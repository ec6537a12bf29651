"""Gemma 1, 2 and 3, VaultGemma and Rnj-1: what they do differently, as data. Torch-free, but for the model class."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
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

from core.api import CheckpointError, RopeConfig, config_architecture, config_object, rope_config

_ORIGINAL = "original_max_position_embeddings"
_SIZES = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192}
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
_SECOND = {**_SIZES, **_CAPS, "sliding_window": 4096, "sliding_window_pattern": 2}

DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "gemma": {**_SIZES, "num_attention_heads": 16, "num_key_value_heads": 16},
        "gemma2": _SECOND,
        "gemma3_text": {
            **_SIZES,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
        },
        "vaultgemma": _SECOND,
    }
)
"""Values of keys that a configuration lacks, as transformers has them, by model type."""

_TYPES = {
    "Gemma": "gemma",
    "Gemma2": "gemma2",
    "Gemma3": "gemma3_text",
    "VaultGemma": "vaultgemma",
    "Rnj1": "gemma3_text",
}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration, in the form of transformers 4 or 5."""
    version, given = _fields(config)
    softcap = given.maybe("attn_logit_softcapping")
    ropes = {kind: _rope(given, kind, version) for kind in (FULL, SLIDING)}
    layers = {kind: _layer(given, version, ropes[kind], kind, softcap) for kind in (FULL, SLIDING)}
    every = given.integer("sliding_window_pattern", 1)
    hidden = given.integer("hidden_size")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=tuple(layers[kind] for kind in given.kinds(lambda layer: SLIDING if (layer + 1) % every else FULL)),
        final_norm=_norm(given, "norm"),
        max_positions=ropes[FULL].context,
        dtype=given.dtype(),
        embed_scale=hidden**0.5,
        tied=given.flag("tie_word_embeddings", default=True),
        softcap=given.maybe("final_logit_softcapping"),
        causal=given.causal,
        pooling=given.pooling(),
        score=given.score(),
    )


shape = shape_of(read)


class Gemma(CausalLM):
    """The architectures."""

    describe = staticmethod(read)


def _fields(config: Mapping[str, Any]) -> tuple[str, Fields]:
    """Return the model type and the configuration with what it lacks."""
    name = config_architecture(config, "")
    family = name.partition("For")[0].removesuffix("Model").removesuffix("Text")
    version = _TYPES.get(family, "") if name else str(config.get("model_type"))
    if version not in DEFAULTS:
        raise CheckpointError("CORE-M126", f"the architecture is {name!r:.60}, not one of {', '.join(_TYPES)}.")
    given = Fields({**DEFAULTS[version], **config}, name)
    if family == "Rnj1" and set(config.get("layer_types") or ()) != {FULL}:
        text = f"'layer_types' is {config.get('layer_types')!r:.60}; of Rnj-1, layers of '{FULL}' alone are supported."
        raise CheckpointError("CORE-M126", text)
    if not given.causal and (version != "gemma3_text" or config.get("is_causal") is False):
        # How far a window reaches both ways is known of Gemma 3 alone, for which this is a key of its own.
        given.refuse("use_bidirectional_attention")
        raise CheckpointError("CORE-M126", "'is_causal' is false, which is not supported.")
    return version, given


def _layer(given: Fields, version: str, rope: RopeConfig, kind: str, softcap: float | None) -> Layer:
    """Return a layer of one kind."""
    first, third = version == "gemma", version == "gemma3_text"
    head_dim, bias = given.head_dim(), given.flag("attention_bias")
    scalar = head_dim if first else given.number("query_pre_attn_scalar", 256, least=1e-3)
    attention = Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=head_dim,
        scale=scalar**-0.5,
        bias=bias,
        output_bias=bias,
        rope=rope,
        q_norm=HeadNorm(norm=_norm(given, "q_norm")) if third else None,
        k_norm=HeadNorm(norm=_norm(given, "k_norm")) if third else None,
        window=given.window() if kind == SLIDING else None,
        softcap=softcap,
    )
    activation = given.text("hidden_act" if first else "hidden_activation", "gelu_pytorch_tanh")
    if first and activation == "gelu":
        activation = "gelu_pytorch_tanh"  # the name of the first checkpoints for what they were trained with
    mlp = MLP(size=given.integer("intermediate_size"), activation=activation)
    before, behind = _norm(given, "input_layernorm"), _norm(given, "post_attention_layernorm")
    if first:
        return Layer(attention=attention, mlp=mlp, before_attention=before, before_mlp=behind)
    inner = _norm(given, "pre_feedforward_layernorm")
    if version == "vaultgemma":
        return Layer(attention=attention, mlp=mlp, before_attention=before, before_mlp=inner)
    return Layer(
        attention=attention,
        mlp=mlp,
        before_attention=before,
        after_attention=behind,
        before_mlp=inner,
        after_mlp=_norm(given, "post_feedforward_layernorm"),
    )


def _norm(given: Fields, name: str) -> Norm:
    """Return a norm; checkpoints store how far each factor is from 1."""
    return Norm(name=name, eps=given.number("rms_norm_eps", 1e-6, least=0.0), offset=1.0)


def _rope(given: Fields, kind: str, version: str) -> RopeConfig:
    """Return the rotary embedding of one kind of layers: transformers 5 may have parameters for each.

    Gemma 3 scales that of full attention only, and its sliding layers have their own base; the others have one for all.
    """
    config, third = given.config, version == "gemma3_text"
    stored = config_object(config, "rope_parameters")
    if stored.keys() & {SLIDING, FULL}:
        parameters = dict(config_object(stored, kind))
    elif kind == SLIDING and third:
        parameters = {"rope_theta": config.get("rope_local_base_freq")}
    else:
        parameters = {"rope_theta": config.get("rope_theta"), **stored, **config_object(config, "rope_scaling")}
    context = given.positions()
    here = {"rope_parameters": parameters, "max_position_embeddings": context}
    rope = rope_config(here, given.head_dim(), theta=1e6 if third and kind == FULL else 1e4)
    if rope.rule != "linear" or _ORIGINAL in rope.scaling:
        return rope
    # These configurations name the context that linear scaling has made, not the one before it.
    return rope.model_copy(update={"scaling": {**rope.scaling, _ORIGINAL: context / rope.factor}})
