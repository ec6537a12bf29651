"""HunYuan MoE: the dense decoder, with a mixture of experts and a shared MLP in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import MLP, CausalLM, Decoder, Fields, Mixture, shape_of

from core.api import CheckpointError, Routing
from core_plugin_hunyuan.family import read as read_dense


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given, decoder = Fields(config, "HunYuanMoEV1ForCausalLM"), read_dense(config)
    given.refuse("moe_layer_num_skipped", "mlp_bias")
    given.expect("use_mixed_mlp_moe", True)
    size = given.integer("intermediate_size")
    for name, due in (("moe_intermediate_size", size), ("num_shared_expert", 1)):
        if set(_by_layer(given, name, due)) != {due}:
            raise CheckpointError("CORE-M126", f"'{name}' is {given.config[name]!r:.60}; supported is {due}.")
    experts, activation = given.integer("num_experts", 1), given.text("hidden_act", "silu")
    layers = tuple(
        replace(
            layer,
            mlp=Mixture(
                experts=experts,
                size=size,
                routing=Routing(top_k=top_k, renormalize=True),
                activation=activation,
                router="gate.wg",
                shared=MLP(size=size, activation=activation, name="shared_mlp"),
            ),
        )
        for layer, top_k in zip(decoder.layers, _by_layer(given, "moe_topk", 1, most=experts), strict=True)
    )
    return replace(decoder, layers=layers)


def _by_layer(given: Fields, name: str, default: int, **bounds: int) -> tuple[int, ...]:
    """Return a number for each layer: a list, or one number for all of them."""
    values, count = given.config.get(name), given.layers()
    if not isinstance(values, list):
        return (given.integer(name, default, **bounds),) * count
    if len(values) != count:
        raise CheckpointError("CORE-M126", f"'{name}' must give a number for each of {count} layers.")
    return tuple(Fields({name: value}).integer(name, **bounds) for value in values)


shape = shape_of(read)


class HunYuanMoE(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
