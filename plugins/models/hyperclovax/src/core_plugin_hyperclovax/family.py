"""HyperCLOVA X: Llama's decoder with factors (muP), and norms behind attention and MLP, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "HyperCLOVAXForCausalLM")
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-6, least=0.0)
    bias, behind = given.flag("attention_bias"), given.flag("use_post_norm", default=True)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=given.number("attention_multiplier", size**-0.5),
            bias=bias,
            output_bias=bias,
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=given.flag("mlp_bias"),
            down_bias=given.flag("mlp_bias"),
        ),
        before_attention=Norm(name="input_layernorm", eps=eps),
        after_attention=Norm(name="post_norm1", eps=eps) if behind else None,
        before_mlp=Norm(name="post_attention_layernorm", eps=eps),
        after_mlp=Norm(name="post_norm2", eps=eps) if behind else None,
        scale=given.number("residual_multiplier", 1.0),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="norm", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype(),
        embed_scale=given.number("embedding_multiplier", 1.0),
        logit_scale=given.number("logits_scaling", 1.0),
        tied=given.flag("tie_word_embeddings"),
    )


shape = shape_of(read)


class HyperCLOVAX(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
