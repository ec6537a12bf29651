"""LFM2 and its mixtures of experts: most layers read a few tokens by a short convolution, some attend to all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import (
    MLP,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    HeadNorm,
    Layer,
    Mixture,
    Norm,
    Recurrence,
    shape_of,
)

from core.api import CheckpointError, Routing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from core.api import LayerBuilder, RopeConfig, StepInputs

CONV, FULL = "conv", "full_attention"
_WEIGHTS = {"gate": "w1", "up": "w3", "down": "w2"}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    older = {"tie_word_embeddings": "tie_embedding", "intermediate_size": "block_ff_dim"}
    given = Fields(config, "Lfm2ForCausalLM", {new: old for new, old in older.items() if old in config})
    rope, eps = given.rope(theta=1e6), given.number("norm_eps", 1e-5, least=0.0)
    dense = MLP(size=_inner(given), name="feed_forward", **_WEIGHTS)
    mixture = _mixture(given) if config.get("num_experts") is not None else None
    first = 0 if mixture is None else given.count("num_dense_layers", 2)
    layers = tuple(
        Layer(
            attention=_conv(given) if kind == CONV else _attention(given, rope, eps),
            mlp=dense if mixture is None or index < first else mixture,
            before_attention=Norm(name="operator_norm", eps=eps),
            before_mlp=Norm(name="ffn_norm", eps=eps),
        )
        for index, kind in enumerate(_kinds(given))
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="embedding_norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings", default=True),
    )


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the kind of each layer: `layer_types`, or those that attend in `full_attn_idxs`."""
    count, listed = given.layers(), given.config.get("layer_types")
    if listed is None:
        attending = given.config.get("full_attn_idxs")
        return tuple(FULL if attending is None or index in attending else CONV for index in range(count))
    if not isinstance(listed, list) or len(listed) != count or not set(listed) <= {CONV, FULL}:
        raise CheckpointError("CORE-M126", f"'layer_types' must name {count} layers as {CONV} or {FULL}.")
    return tuple(listed)


def _inner(given: Fields) -> int:
    """Return the inner size of a dense MLP: two thirds of what the configuration names, rounded up, if it says so."""
    size = given.integer("intermediate_size")
    if given.config.get("num_experts") is not None or not given.flag("block_auto_adjust_ff_dim", default=True):
        return size
    size = int(given.number("block_ffn_dim_multiplier", 1.0, least=0.0) * int(2 * size / 3))
    multiple = given.integer("block_multiple_of", 256)
    return -(-size // multiple) * multiple


def _mixture(given: Fields) -> Mixture:
    corrected = given.flag("use_expert_bias", default=True)
    return Mixture(
        experts=given.integer("num_experts"),
        size=given.integer("moe_intermediate_size"),
        name="feed_forward",
        parts=(_WEIGHTS["gate"], _WEIGHTS["up"]),
        down=_WEIGHTS["down"],
        correction="expert_bias" if corrected else None,
        routing=Routing(
            top_k=given.integer("num_experts_per_tok"),
            score="sigmoid",
            correction=corrected,
            renormalize=given.flag("norm_topk_prob", default=True),
            eps=1e-6,
            factor=given.number("routed_scaling_factor", 1.0, least=0.0),
        ),
    )


def _attention(given: Fields, rope: RopeConfig, eps: float) -> Attention:
    size = given.head_dim()
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        output="out_proj",
        rope=rope,
        q_norm=HeadNorm(norm=Norm(name="q_layernorm", eps=eps)),
        k_norm=HeadNorm(norm=Norm(name="k_layernorm", eps=eps)),
    )


def _conv(given: Fields) -> Recurrence:
    width, bias, size = given.integer("conv_L_cache", 3), given.flag("conv_bias"), given.integer("hidden_size")
    hidden = ("hidden_size", size)
    weights = (
        ("in_proj", (("3 * hidden_size", 3 * size), hidden)),
        ("out_proj", (hidden, hidden)),
        ("conv", (hidden, ("1", 1), ("conv_L_cache", width))),
    )
    return Recurrence(name="conv", make=partial(_made, width=width, bias=bias), weights=weights)


def _made(
    build: LayerBuilder, hidden_size: int, path: str, *, width: int, bias: bool
) -> Callable[[Tensor, StepInputs], Tensor]:
    from core_plugin_lfm2.mixer import ShortConv

    return ShortConv(build, hidden_size, path, width, bias)


shape = shape_of(read)


class LFM2(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
