"""Grok-1 and Grok-2: norms around attention and experts, soft caps, factors of embedding and logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Mixture, Norm, shape_of

from core.api import MOST_POSITIONS, RopeConfig, Routing

_USUAL = {
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "embedding_multiplier_scale": 78.38367176906169,
    "output_multiplier_scale": 0.5773502691896257,
    "num_experts_per_tok": 2,
}
"""Defaults of the makers of Grok-1's checkpoint for keys that a configuration lacks."""

_CAP = 30.0
_NORMS = ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({**_USUAL, **config}, "Grok1ForCausalLM")
    _require_supported(given)
    # Grok-2 counts its experts under another key, and calls its modules otherwise.
    second = given.config.get("num_local_experts") is not None
    rope, mixture = given.rope(), _second(given) if second else _first(given)
    before, after, before_mlp, after_mlp = (_norm(given, name) for name in _NORMS)
    if mixture.shared is not None:
        # The sum of experts and MLP is divided by the root of 2, which is a greater epsilon of the norm behind it.
        after_mlp = Norm(name=after_mlp.name, eps=2 * after_mlp.eps)
    layer = Layer(
        attention=_attention(given, rope, "self_attn" if second else "attn"),
        mlp=mixture,
        before_attention=before,
        after_attention=after,
        before_mlp=before_mlp,
        after_mlp=after_mlp,
    )
    norms = (*(f"layers.*.{name}" for name in _NORMS), "norm")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=_norm(given, "norm"),
        max_positions=_positions(given, rope.context),
        dtype=given.dtype(),
        embed_scale=given.number("embedding_multiplier_scale", 1.0),
        tied=given.flag("tie_word_embeddings", default=not second),
        logit_scale=given.number("output_multiplier_scale", 1.0),
        softcap=given.maybe("final_logit_softcapping"),
        renames=tuple((f"model.{name}.scale", f"model.{name}.weight") for name in norms),
    )


def _require_supported(given: Fields) -> None:
    """Raise an error for keys that ask for another architecture."""
    given.refuse("rope_rotate_half_dims", "attention_bias")
    given.expect("sliding_window_size", -1)
    given.expect("global_attn_every_n", 1)
    given.expect("rope_type", "original", "default")  # both are the plain embedding
    given.expect("attn_logit_softcapping_method", "tanh")


def _positions(given: Fields, context: int) -> int:
    """Return the longest context: behind a length, capped scores grow with the position, as no backend computes it."""
    length = int(given.number("attn_temperature_len", -1, least=-1, most=MOST_POSITIONS))
    return min(context, length) if length > 0 else context


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, eps=given.number("rms_norm_eps", 1e-5, least=0.0))


def _attention(given: Fields, rope: RopeConfig, name: str) -> Attention:
    size = given.head_dim()
    return Attention(
        name=name,
        heads=given.heads(),
        kv_heads=given.kv_heads(),
        head_dim=size,
        # It is called a factor of the output, and is one of the scores.
        scale=given.number("attn_output_multiplier", size**-0.5, least=0.0),
        rope=rope,
        softcap=given.maybe("attn_logit_softcapping", given.maybe("max_attn_value", _CAP)),
    )


def _first(given: Fields) -> Mixture:
    """Return the experts under the names of Grok-1."""
    return _mixture(
        given,
        given.integer("num_experts", 8),
        given.integer("intermediate_size"),
        router="moe_block.gate",
        module="moe_block.experts",
        parts=("linear", "linear_v"),
        down="linear_1",
    )


def _second(given: Fields) -> Mixture:
    """Return the experts under the names of Grok-2, perhaps beside an MLP."""
    inner = given.integer("intermediate_size")
    beside = MLP(size=inner, activation=_activation(given)) if given.flag("residual_moe") else None
    return _mixture(
        given,
        given.integer("num_local_experts"),
        given.integer("moe_intermediate_size", inner),
        router="block_sparse_moe.gate",
        module="block_sparse_moe.experts",
        parts=("w1", "w3"),
        down="w2",
        shared=beside,
    )


def _activation(given: Fields) -> str:
    return given.text("hidden_act", "gelu_pytorch_tanh")


def _mixture(given: Fields, experts: int, size: int, **names: Any) -> Mixture:
    top_k = given.integer("num_experts_per_tok", most=experts)
    cap = given.number("router_logit_softcapping", _CAP, least=1e-3)
    return Mixture(
        experts=experts,
        size=size,
        routing=Routing(top_k=top_k, cap=cap),
        activation=_activation(given),
        name="",  # what stands beside the experts is no part of their module
        **names,
    )


shape = shape_of(read)


class Grok(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
