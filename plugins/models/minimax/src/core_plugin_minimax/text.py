"""MiniMax-Text-01, and M1: lightning attention in most layers, and residuals of normalised hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from core_plugin_decoder import (
    FULL,
    Attention,
    CausalLM,
    Decoder,
    Fields,
    Layer,
    Mixture,
    Norm,
    Recurrence,
    shape_of,
)

from core.api import CheckpointError, RopeConfig, Routing
from core_plugin_minimax.original import LINEAR, published, slopes, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from core.api import LayerBuilder, StepInputs

_DECAYS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Tensors that transformers stores, and that follow from a layer's number."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    known = translated(config) if published(config) else config
    given = Fields({"num_key_value_heads": 8, **known}, "MiniMaxForCausalLM", {"num_local_experts": "num_experts"})
    rope, eps = given.rope(theta=1e6), given.number("rms_norm_eps", 1e-5, least=0.0)
    full, mixture = _attention(given, rope), _mixture(given)
    layers = tuple(
        Layer(
            attention=_lightning(given, index) if kind == LINEAR else full,
            mlp=mixture,
            before_attention=Norm(name="input_layernorm", eps=eps),
            before_mlp=Norm(name="post_attention_layernorm", eps=eps),
            weighs=(_factors(given, "linear_attn" if kind == LINEAR else "full_attn"), _factors(given, "mlp")),
        )
        for index, kind in enumerate(_kinds(given))
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        skips=tuple(f"*.self_attn.{name}" for name in _DECAYS),
    )


shape = shape_of(read)


class MiniMaxText(CausalLM):
    """The architectures."""

    describe = staticmethod(read)


def _kinds(given: Fields) -> tuple[str, ...]:
    """Return the kind of each layer: `layer_types`, or by turns."""
    count, listed = given.layers(), given.config.get("layer_types")
    if listed is None:
        return tuple(LINEAR if index % 2 else FULL for index in range(count))
    if not isinstance(listed, list) or len(listed) != count or not set(listed) <= {LINEAR, FULL}:
        raise CheckpointError("CORE-M126", f"'layer_types' must name {count} layers as {LINEAR} or {FULL}.")
    return tuple(listed)


def _factors(given: Fields, part: str) -> tuple[float, float]:
    """Return the factors of the residual and of what a part adds."""
    return given.number(f"{part}_alpha_factor", 1.0), given.number(f"{part}_beta_factor", 1.0)


def _attention(given: Fields, rope: RopeConfig) -> Attention:
    size = given.head_dim()
    return Attention(
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        scale=size**-0.5,
        rope=rope,
        window=given.window(),
    )


def _lightning(given: Fields, index: int) -> Recurrence:
    size, heads = given.head_dim(), given.heads()
    rule = slopes if published(given.config) else _slopes
    hidden, wide = ("hidden_size", given.integer("hidden_size")), ("num_attention_heads * head_dim", heads * size)
    weights = (
        ("qkv_proj", (("3 * num_attention_heads * head_dim", 3 * heads * size), hidden)),
        ("norm", (wide,)),
        ("output_gate", (wide, hidden)),
        ("out_proj", (hidden, wide)),
    )
    made = partial(
        _made, size=size, slopes=rule(heads, index, given.layers()), activation=given.text("hidden_act", "silu")
    )
    return Recurrence(name="self_attn", make=made, weights=weights)


def _slopes(heads: int, index: int, layers: int) -> tuple[float, ...]:
    """Return the slope of each head: a geometric series, which is flatter in later layers."""
    flatter = 1 - index / (layers - 1 + 1e-5) + 1e-5
    return tuple(2.0 ** (-8 * head / heads) * flatter for head in range(1, heads + 1))


def _made(
    build: LayerBuilder, hidden_size: int, path: str, *, size: int, slopes: Sequence[float], activation: str
) -> Callable[[Tensor, StepInputs], Tensor]:
    from core_plugin_minimax.lightning import LightningAttention

    return LightningAttention(build, hidden_size, path, size, slopes, activation)


def _mixture(given: Fields) -> Mixture:
    experts = given.integer("num_local_experts", 8)
    return Mixture(
        experts=experts,
        size=given.integer("intermediate_size"),
        routing=Routing(top_k=given.integer("num_experts_per_tok", 2, most=experts), renormalize=True),
        activation=given.text("hidden_act", "silu"),
        name="block_sparse_moe",
        parts=("w1", "w3"),
        down="w2",
    )
