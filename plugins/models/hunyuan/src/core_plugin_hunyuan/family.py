"""HunYuan dense: Llama's decoder, with norms of queries and keys behind the rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of

from core.api import RopeConfig, config_number, config_object

_PLACES = ("rope_scaling", "rope_parameters")


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "HunYuanDenseV1ForCausalLM")
    given.refuse("use_cla")
    given.expect("use_qk_norm", True)
    rope, eps, size = _rope(given), given.number("rms_norm_eps", 1e-5, least=0.0), given.head_dim()
    bias = given.flag("attention_bias")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            rotates_first=True,
            q_norm=HeadNorm(norm=Norm(name="query_layernorm", eps=eps)),
            k_norm=HeadNorm(norm=Norm(name="key_layernorm", eps=eps)),
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        pooling=given.pooling(),
        causal=given.causal,
    )


shape = shape_of(read)


class HunYuan(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _rope(given: Fields) -> RopeConfig:
    """Return the rotary embedding. `alpha` makes the base greater for good, although the rule is called `dynamic`."""
    for place in _PLACES:
        scaling = config_object(given.config, place)
        kind = scaling.get("rope_type", scaling.get("type"))
        if kind == "dynamic" and scaling.get("alpha"):
            rest = dict.fromkeys(_PLACES) | {"rope_theta": scaling.get("rope_theta", _theta(given))}
            plain = Fields({**given.config, **rest}, given.architecture).rope()
            alpha, dim = config_number(scaling, "alpha", 1.0, least=1e-3, most=1e6), plain.rotary_dim
            return plain.model_copy(update={"theta": plain.theta * alpha ** (dim / (dim - 2))})
    return given.rope()


def _theta(given: Fields) -> object:
    """Return the base beside the scaling."""
    return config_object(given.config, "rope_parameters").get("rope_theta", given.config.get("rope_theta"))
