"""Nemotron-H: each layer is one of Mamba-2, attention without positions, an MLP, or a mixture of experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    Layer,
    Mamba2,
    Mixture,
    Norm,
    Recurrence,
    grouped_mixture,
    shape_of,
)

from core.api import MOST_LAYERS, CheckpointError, config_names

MAMBA, ATTENTION, DENSE, EXPERTS = "M", "*", "-", "E"
"""Letters of the pattern of the layers."""

_LETTERS = {
    "mamba": MAMBA,
    "linear_attention": MAMBA,
    "attention": ATTENTION,
    "full_attention": ATTENTION,
    "mlp": DENSE,
    "moe": EXPERTS,
}
"""The same kinds by transformers' names of all times."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    older = {"n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv", "use_conv_bias": "mamba_conv_bias"}
    older |= {"time_step_min": "mamba_dt_min"}
    usual = {"norm_topk_prob": True, "n_routed_experts": 8, "moe_intermediate_size": 7688, "num_experts_per_tok": 2}
    given = Fields(
        {**usual, **config}, "NemotronHForCausalLM", {new: old for new, old in older.items() if old in config}
    )
    given.refuse("sliding_window")
    given.expect("mamba_hidden_act", "silu")
    pattern, eps = _pattern(given), given.number("layer_norm_epsilon", 1e-5, least=0.0)
    norm = Norm(name="norm", eps=eps)
    kinds = {
        kind: _layer(_body(given, kind, eps), norm) for kind in (MAMBA, ATTENTION, DENSE, EXPERTS) if kind in pattern
    }
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(kinds[kind] for kind in pattern),
        final_norm=Norm(name="norm_f", eps=eps),
        max_positions=given.positions(4096),
        dtype=given.dtype(),
        root="backbone",
        embed="embeddings",
        tied=given.flag("tie_word_embeddings"),
        skips=("mtp.*",),
    )


def _pattern(given: Fields) -> str:
    """Return the letter of each layer: of `hybrid_override_pattern`, or by the names of `layers_block_type`."""
    key = next((one for one in ("layers_block_type", "layer_types") if given.config.get(one) is not None), None)
    if key is None:
        pattern = given.text("hybrid_override_pattern", "ME*-")
    else:
        pattern = "".join(_LETTERS.get(name, "?") for name in config_names(given.config, key) or ())
    if not 0 < len(pattern) <= MOST_LAYERS or not set(pattern) <= set(_LETTERS.values()):
        text = f"'{key or 'hybrid_override_pattern'}' names no layers, or others than {', '.join(sorted(_LETTERS))}."
        raise CheckpointError("CORE-M126", text)
    return pattern


def _layer(body: Attention | Recurrence | MLP | Mixture, norm: Norm) -> Layer:
    if isinstance(body, Attention | Recurrence):
        return Layer(attention=body, mlp=None, before_attention=norm)
    return Layer(attention=None, mlp=body, before_mlp=norm)


def _body(given: Fields, kind: str, eps: float) -> Attention | Recurrence | MLP | Mixture:
    """Return what a layer of this kind is; `eps` of its norms."""
    if kind == MAMBA:
        return _mixer(given, eps)
    if kind == ATTENTION:
        size = given.integer("head_dim", 128)
        heads, shared = given.heads(), given.kv_heads()
        return Attention(heads=heads, kv_heads=shared, head_dim=size, scale=size**-0.5, name="mixer")
    return _mlp(given, given.integer("intermediate_size", 21504)) if kind == DENSE else _mixture(given)


def _mlp(given: Fields, size: int, name: str = "mixer") -> MLP:
    bias, activation = given.flag("mlp_bias"), given.text("mlp_hidden_act", "relu2")
    return MLP(size=size, activation=activation, name=name, gate=None, bias=bias, down_bias=bias)


def _mixture(given: Fields) -> Mixture:
    size = given.integer("moe_shared_expert_intermediate_size", 7688)
    return replace(
        grouped_mixture(given),
        activation=given.text("mlp_hidden_act", "relu2"),
        name="mixer",
        parts=("up_proj",),
        shared=_mlp(given, size, "shared_experts"),
        latent=None if given.config.get("moe_latent_size") is None else given.integer("moe_latent_size"),
        latent_bias=given.flag("mlp_bias"),
    )


def _mixer(given: Fields, eps: float) -> Recurrence:
    bias, groups = given.flag("use_bias"), given.integer("n_groups", 8)
    return Mamba2(
        heads=given.integer("mamba_num_heads", 128),
        head_dim=given.integer("mamba_head_dim", 64),
        groups=groups,
        state_dim=given.integer("ssm_state_size", 128),
        width=given.integer("conv_kernel", 4),
        bias=bias,
        output_bias=bias,
        conv_bias=given.flag("use_conv_bias", default=True),
        limits=(given.number("time_step_min", 0.001, least=0.0), float("inf")),
        norm=Norm(name="norm", eps=eps, groups=groups),
    ).recurrence(given.integer("hidden_size"))


shape = shape_of(read)


class NemotronH(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
