"""Ministral: Llama's decoder with windows; Ministral 3 has YaRN, and queries that grow with their position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import FULL, MLP, SLIDING, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import config_int, config_number, config_object

_BETA, _ORIGINAL = "llama_4_scaling_beta", "original_max_position_embeddings"
_PLACES = ("rope_scaling", "rope_parameters")
_USUAL = {"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096}
_USUAL_3 = {
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 16.0,
        _ORIGINAL: 16384,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        _BETA: 0.1,
    },
}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    third = Fields(config, "MinistralForCausalLM").architecture.startswith("Ministral3")
    grows, config = _grown({**(_USUAL_3 if third else _USUAL), **config})
    given = Fields(config, "MinistralForCausalLM")
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-6, least=0.0)
    window = given.window()
    usual = FULL if window is None else SLIDING
    kinds = (usual,) * given.layers() if third else given.kinds(lambda _: usual)
    full = Layer(
        attention=Attention(
            heads=given.heads(), kv_heads=given.kv_heads(), head_dim=size, scale=size**-0.5, rope=rope, grows=grows
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    sliding = replace(full, attention=replace(full.attention, window=window))
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=tuple(sliding if kind == SLIDING else full for kind in kinds),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class Ministral(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _grown(config: Mapping[str, Any]) -> tuple[tuple[float, int] | None, Mapping[str, Any]]:
    """Return how queries grow, and the configuration without what stands among the rotary parameters for that."""
    grows, rest = None, dict(config)
    for place in _PLACES:
        scaling = dict(config_object(config, place))
        beta = config_number(scaling, _BETA, 0.0, least=0.0)
        if beta:
            grows = (beta, config_int(scaling, _ORIGINAL))
        rest[place] = {key: value for key, value in scaling.items() if key not in (_BETA, "max_position_embeddings")}
    return grows, rest
