"""IQuest LoopCoder: Llama's decoder, run several times, with gates between what its passes see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Mix, Norm, shape_of

_PASSES, _WINDOW, _THETA = 2, 64, 500_000.0
"""Values of keys that a configuration lacks, as its makers have them."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "IQuestLoopCoderForCausalLM")
    given.refuse("attention_bias", "mlp_bias", "use_sliding_window", "sliding_window")
    rope, eps = given.rope(theta=_THETA), given.number("rms_norm_eps", 1e-5, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            rope=rope,
            mix=Mix(gate="gate_projections.{}", window=given.integer("loop_window_size", _WINDOW)),
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu")),
        before_attention=Norm(name="input_layernorm", eps=eps),
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
    )
    passes = given.integer("loop_num", _PASSES)
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        tied=given.flag("tie_word_embeddings"),
        passes=passes,
        skips=() if passes > 1 else ("*gate_projections.*",),
    )


shape = shape_of(read)


class LoopCoder(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
