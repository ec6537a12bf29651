"""Bamba: layers of Mamba-2, some of attention, each with an MLP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    Layer,
    Mamba2,
    Norm,
    Recurrence,
    shape_of,
    step_limits,
)

from core.api import CheckpointError


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "BambaForCausalLM")
    given.expect("hidden_act", "silu")
    attending, count = given.integers("attn_layer_indices"), given.layers()
    if not all(0 <= index < count for index in attending):
        raise CheckpointError("CORE-M126", f"'attn_layer_indices' names layers beyond the {count} that there are.")
    eps, bias = given.number("rms_norm_eps", 1e-5, least=0.0), given.flag("mlp_bias")
    mlp = MLP(size=given.integer("intermediate_size"), name="feed_forward", bias=bias, down_bias=bias)
    attention, mixer = _attention(given), _mixer(given, eps)
    layers = tuple(
        Layer(
            attention=attention if index in attending else mixer,
            mlp=mlp,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="pre_ff_layernorm", eps=eps),
        )
        for index in range(count)
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="final_layernorm", eps=eps),
        max_positions=given.positions(262144),
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
    )


def _attention(given: Fields) -> Attention:
    size, bias = given.head_dim(), given.flag("attention_bias")
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        bias=bias,
        output_bias=bias,
        rope=given.rope(size, partial=0.5),
    )


def _mixer(given: Fields, eps: float) -> Recurrence:
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
        norm=Norm(name="norm", eps=eps, groups=groups),
        name="mamba",
    ).recurrence(size)


shape = shape_of(read)


class Bamba(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
