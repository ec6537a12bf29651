"""Granite hybrids: layers of Mamba-2, some of attention, each with an MLP and perhaps experts beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Mamba2, Norm, Recurrence, shape_of, step_limits

from core.api import CheckpointError, config_names
from core_plugin_granite.family import read as read_granite
from core_plugin_granite.moe import mixture, names_of, shared_mlp

_ATTENDS = {"attention": True, "full_attention": True, "mamba": False, "linear_attention": False}
"""Kinds of layers, by transformers' names of all times."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GraniteMoeHybridForCausalLM")
    given.refuse("mlp_bias")
    given.expect("position_embedding_type", "rope", "nope")
    decoder, mixer = read_granite(config), _mixer(given)
    rotates = config.get("position_embedding_type") == "rope"
    experts = given.count("num_local_experts", 8)
    names = names_of(given)
    shared = shared_mlp(given, fused=names.ending is not None)
    mlp = mixture(given, names, shared) if experts else shared
    mixing = replace(decoder.layers[0], attention=mixer, mlp=mlp)
    attending = replace(decoder.layers[0], attention=_attention(decoder, rotates=rotates), mlp=mlp)
    return replace(
        decoder,
        layers=tuple(attending if attends else mixing for attends in _attending(given)),
        max_positions=decoder.max_positions if rotates else given.positions(),
        experts=names.stored if experts else (),
    )


def _attention(decoder: Decoder, *, rotates: bool) -> Attention:
    """Return the attention of a dense Granite; without rotary embedding, if nothing rotates."""
    (attention, *_) = (one for one in decoder.attentions if isinstance(one, Attention))
    return attention if rotates else replace(attention, rope=None)


def _attending(given: Fields) -> tuple[bool, ...]:
    """Return of each layer whether it attends: none does where the configuration says nothing."""
    count = given.layers()
    key = "layer_types" if given.config.get("layer_types") is not None else "layers_block_type"
    kinds = config_names(given.config, key)
    if kinds is None:
        return (False,) * count
    if len(kinds) != count or not set(kinds) <= set(_ATTENDS):
        raise CheckpointError("CORE-M126", f"'{key}' must name {count} layers as {', '.join(_ATTENDS)}.")
    return tuple(_ATTENDS[kind] for kind in kinds)


def _mixer(given: Fields) -> Recurrence:
    given.expect("hidden_act", "silu")
    size, bias = given.integer("hidden_size"), given.flag("mamba_proj_bias")
    heads, groups = given.integer("mamba_n_heads", 128), given.integer("mamba_n_groups", 1)
    inner = given.integer("mamba_expand", 2) * size
    if inner % heads:
        raise CheckpointError("CORE-M126", f"'mamba_n_heads' is {heads}, which does not divide {inner} channels.")
    return Mamba2(
        heads=heads,
        head_dim=inner // heads,
        groups=groups,
        state_dim=given.integer("mamba_d_state", 256),
        width=given.integer("mamba_d_conv", 4),
        bias=bias,
        output_bias=bias,
        conv_bias=given.flag("mamba_conv_bias", default=True),
        limits=step_limits(given.config),
        norm=Norm(name="norm", eps=given.number("rms_norm_eps", 1e-6, least=0.0), groups=groups),
        name="mamba",
    ).recurrence(size)


shape = shape_of(read)


class GraniteHybrid(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
