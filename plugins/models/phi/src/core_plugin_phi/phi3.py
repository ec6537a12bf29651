"""Phi-3 and Phi-4: Llama's decoder with fused projections, long contexts by LongRoPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import config_object

_ORIGINAL = "original_max_position_embeddings"


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(_today(config), "Phi3ForCausalLM")
    rope, eps, size = given.rope(), given.number("rms_norm_eps", 1e-5, least=0.0), given.head_dim()
    window = given.window()
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            fused="qkv_proj",
            rope=rope,
            window=None if window is None or window >= rope.context else window,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            fused="gate_up_proj",
        ),
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


class Phi3(CausalLM):
    """The architecture."""

    describe = staticmethod(read)


def _today(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration with today's names: LongRoPE was `su` or `yarn` once, and has an original context."""
    key = "rope_scaling" if config_object(config, "rope_scaling") else "rope_parameters"
    scaling = dict(config_object(config, key))
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind not in ("su", "yarn", "longrope"):
        return config
    scaling["rope_type"] = "longrope"
    scaling.pop("type", None)
    return {_ORIGINAL: scaling.get(_ORIGINAL, 4096), **config, key: scaling}
