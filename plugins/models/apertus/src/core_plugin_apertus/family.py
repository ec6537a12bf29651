"""Apertus: Llama's decoder, with norms of queries and keys and an MLP of xIELU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, HeadNorm, Layer, Norm, shape_of

from core_plugin_apertus.xielu import XIELU

_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 12000000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
"""The rotary embedding of configurations that say nothing of one."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    if not config.get("rope_parameters") and not config.get("rope_scaling"):
        config = {**config, "rope_parameters": _ROPE}
    given = Fields(config, "ApertusForCausalLM")
    rope, eps, size = given.rope(theta=12000000.0), given.number("rms_norm_eps", 1e-5, least=0.0), given.head_dim()
    bias, activation = given.flag("attention_bias"), given.text("hidden_act", "xielu")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
            q_norm=HeadNorm(norm=Norm(name="q_norm", eps=eps)),
            k_norm=HeadNorm(norm=Norm(name="k_norm", eps=eps)),
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=XIELU if activation == "xielu" else activation,
            gate=None,
        ),
        before_attention=Norm(name="attention_layernorm", eps=eps),
        before_mlp=Norm(name="feedforward_layernorm", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        # Guards xIELU's exponential where x is 0 to within a millionth, which changes nothing here.
        skips=("*.act_fn.eps",),
    )


shape = shape_of(read)


class Apertus(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
