"""Falcon-H1: attention and Mamba-2 side by side in every layer, with factors on what they read and give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from torch import Tensor

    from core.api import LayerBuilder
    from core.api.layers import Activation

    Factors = tuple[float, ...]


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "FalconH1ForCausalLM")
    given.expect("hidden_act", "silu")
    eps = given.number("rms_norm_eps", 1e-5, least=0.0)
    layer = Layer(
        attention=_attention(given),
        recurrence=_mixer(given, eps),
        mlp=_mlp(given),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="pre_ff_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="final_layernorm", eps=eps),
        max_positions=given.positions(8192),
        dtype=given.dtype(),
        embed_scale=given.number("embedding_multiplier", 1.0),
        logit_scale=given.number("lm_head_multiplier", 1.0),
        tied=given.flag("tie_word_embeddings"),
    )


def _attention(given: Fields) -> Attention:
    """Return the attention; its factors become those of scores and values, between which and them nothing is added."""
    size, bias = given.head_dim(), given.flag("attention_bias")
    into, out = (given.number(f"attention_{one}_multiplier", 1.0) for one in ("in", "out"))
    if bias and (into, out) != (1.0, 1.0):
        text = "'attention_bias' beside 'attention_in_multiplier' or 'attention_out_multiplier' is not supported."
        raise CheckpointError("CORE-M126", text)
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5 * into**2 * given.number("key_multiplier", 1.0),
        value_scale=into * out,
        bias=bias,
        output_bias=bias,
        rope=given.rope(size),
    )


def _mixer(given: Fields, eps: float) -> Recurrence:
    size, heads, groups = given.integer("hidden_size"), given.integer("mamba_n_heads", 128), _groups(given)
    default = given.integer("mamba_expand", 2) * size
    inner = default if "mamba_d_ssm" in given.config and given.config["mamba_d_ssm"] is None else None
    inner = given.integer("mamba_d_ssm", 1024) if inner is None else inner
    if inner % heads:
        raise CheckpointError("CORE-M126", f"'mamba_n_heads' is {heads}, which does not divide {inner} channels.")
    normed = given.flag("mamba_rms_norm")
    gate, values, b, c, step = _factors(given, "ssm_multipliers", 5)
    return Mamba2(
        heads=heads,
        head_dim=inner // heads,
        groups=groups,
        state_dim=given.integer("mamba_d_state", 256),
        width=given.integer("mamba_d_conv", 4),
        bias=given.flag("mamba_proj_bias"),
        output_bias=given.flag("projectors_bias"),
        conv_bias=given.flag("mamba_conv_bias", default=True),
        limits=step_limits(given.config),
        norm=Norm(name="norm", eps=eps, groups=groups) if normed else None,
        norm_first=given.flag("mamba_norm_before_gate", default=True),
        input_scale=given.number("ssm_in_multiplier", 1.0),
        output_scale=given.number("ssm_out_multiplier", 1.0),
        factors=(gate, values, b, c, step),
        name="mamba",
    ).recurrence(size)


def _groups(given: Fields) -> int:
    return given.integer("mamba_n_groups", 1)


def _mlp(given: Fields) -> MLP:
    bias, (gate, out) = given.flag("mlp_bias"), _factors(given, "mlp_multipliers", 2)
    if bias and out != 1.0:
        raise CheckpointError("CORE-M126", "'mlp_bias' beside the second of 'mlp_multipliers' is not supported.")
    plain = (gate, out) == (1.0, 1.0)
    return MLP(
        size=given.integer("intermediate_size"),
        activation="silu" if plain else partial(_scaled, gate=gate, out=out),
        name="feed_forward",
        bias=bias,
        down_bias=bias,
    )


def _factors(given: Fields, name: str, count: int) -> Factors:
    """Return a list of so many numbers; ones where the key is missing or null."""
    value = given.config.get(name)
    if value is None:
        return (1.0,) * count
    if (
        not isinstance(value, list | tuple)
        or len(value) != count
        or not all(type(one) in (int, float) for one in value)
    ):
        raise CheckpointError("CORE-M126", f"'{name}' is {value!r:.60}, not a list of {count} numbers.")
    return tuple(map(float, value))


def _scaled(build: LayerBuilder, path: str, *, gate: float, out: float) -> Activation:
    """Return `silu(factor * gate) * up * factor`."""
    silu: Callable[[Tensor], Tensor] = build.activation("silu")

    def activate(x: Tensor) -> Tensor:
        """`(T, 2 * size) -> (T, size)`."""
        size = x.shape[-1] // 2
        first, up = x.split_with_sizes((size, size), dim=-1)
        return silu(first * gate) * (up * out)

    return activate


shape = shape_of(read)


class FalconH1(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
