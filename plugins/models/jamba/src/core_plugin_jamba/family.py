"""Jamba: layers of Mamba, some of attention without positions, each with an MLP or with experts."""

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
    Mamba,
    Mixture,
    Norm,
    Recurrence,
    shape_of,
)

from core.api import CheckpointError, Routing


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "JambaForCausalLM", {"num_experts": "num_local_experts"})
    given.expect("hidden_act", "silu")
    eps = given.number("rms_norm_eps", 1e-6, least=0.0)
    dense = MLP(size=given.integer("intermediate_size"), name="feed_forward")
    attention, mixer, mixture = _attention(given), _mixer(given, eps), _mixture(given)
    layers = tuple(
        Layer(
            attention=attention if attends else mixer,
            mlp=mixture if chooses and mixture is not None else dense,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="pre_ff_layernorm", eps=eps),
        )
        for attends, chooses in zip(_turns(given, "attn_layer", 8, 4), _turns(given, "expert_layer", 2, 1))
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


def _turns(given: Fields, name: str, period: int, offset: int) -> tuple[bool, ...]:
    """Return of each layer whether it is the one of its period."""
    period, offset = given.integer(f"{name}_period", period), given.count(f"{name}_offset", offset)
    if offset >= period:
        raise CheckpointError("CORE-M126", f"'{name}_offset' is {offset}, which is not below the period, {period}.")
    return tuple(index % period == offset for index in range(given.layers()))


def _attention(given: Fields) -> Attention:
    size = given.head_dim()
    return Attention(heads=given.heads(), kv_heads=given.kv_heads(), head_dim=size, scale=size**-0.5)


def _mixer(given: Fields, eps: float) -> Recurrence:
    size, rank = given.integer("hidden_size"), given.config.get("mamba_dt_rank", "auto")
    step, b, c = (Norm(name=f"{part}_layernorm", eps=eps) for part in ("dt", "b", "c"))
    return Mamba(
        channels=given.integer("mamba_expand", 2) * size,
        state_dim=given.integer("mamba_d_state", 16),
        rank=-(-size // 16) if rank == "auto" else given.integer("mamba_dt_rank"),
        width=given.integer("mamba_d_conv", 4),
        bias=given.flag("mamba_proj_bias"),
        conv_bias=given.flag("mamba_conv_bias", default=True),
        norms=(step, b, c),
        name="mamba",
    ).recurrence(size)


def _mixture(given: Fields) -> Mixture | None:
    """Return the experts; None where a layer has only one, which is an MLP."""
    experts = given.integer("num_experts", 16)
    if experts == 1:
        return None
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        name="feed_forward",
        router="router",
        routing=Routing(top_k=given.integer("num_experts_per_tok", 2, most=experts), renormalize=False),
    )


shape = shape_of(read)


class Jamba(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
