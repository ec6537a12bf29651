"""ERNIE 4.5 with mixtures of experts in some of the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import MLP, CausalLM, Decoder, Fields, Mixture, shape_of

from core.api import MOST_LAYERS, Routing
from core_plugin_ernie.family import read as read_ernie

_STORED = ((".moe_statics.e_score_correction_bias", ".moe_statics.{}.e_score_correction_bias"),)
"""The biases of the choice, `(1, experts)`: one row for each group of experts, and there is one group."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields({"num_key_value_heads": 4, **config}, "Ernie4_5_MoeForCausalLM")
    given.expect("moe_use_aux_free", True)
    given.expect("moe_gate", "topk")
    given.number("moe_norm_min", 1e-12, least=0.0, most=1e-9)  # the least sum of weights: no sum comes near
    tied, bias = given.flag("tie_word_embeddings", default=True), given.flag("use_bias")
    if tied:
        given.refuse("use_bias")  # an output projection with a bias, and the weights of the embedding
    decoder = read_ernie({"head_dim": given.head_dim(), **given.config})
    mixture, sparse = _mixture(given), _sparse(given)
    layers = tuple(
        replace(layer, mlp=mixture) if index in sparse else layer for index, layer in enumerate(decoder.layers)
    )
    # Layers behind the last one only predict further tokens.
    return replace(decoder, layers=layers, head_bias=bias, experts=_STORED, skips=("model.mtp_*",))


def _sparse(given: Fields) -> frozenset[int]:
    """Return the layers with experts: every so many-th, from one layer to another one."""
    first, every = given.count("moe_layer_start_index", 1), given.integer("moe_layer_interval", 1)
    last = int(given.number("moe_layer_end_index", -1, least=-1, most=MOST_LAYERS))
    end = given.layers() if last < 0 else last + 1
    return frozenset(index for index in range(first, min(end, given.layers())) if (index + 1) % every == 0)


def _mixture(given: Fields) -> Mixture:
    experts, size = given.integer("moe_num_experts", 64), given.integer("moe_intermediate_size", 1536)
    activation, bias = given.text("hidden_act", "silu"), given.flag("use_bias")
    shared = given.count("moe_num_shared_experts", 2)
    return Mixture(
        experts=experts,
        size=size,
        routing=Routing(top_k=given.integer("moe_k", 6, most=experts), correction=True, renormalize=True),
        activation=activation,
        correction="moe_statics.0.e_score_correction_bias",
        shared=MLP(size=shared * size, activation=activation, name="shared_experts", bias=bias, down_bias=bias)
        if shared
        else None,
    )


shape = shape_of(read)


class ErnieMoE(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
