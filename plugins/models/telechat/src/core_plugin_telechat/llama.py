"""Llama's decoder, of which TeleChat 3 and Tele-FLM are made."""

from __future__ import annotations

from core_plugin_decoder import MLP, Attention, Decoder, Fields, Layer, Norm


def llama(given: Fields) -> Decoder:
    """Describe the decoder of a configuration with Llama's keys."""
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-6, least=0.0)
    bias, mlp_bias = given.flag("attention_bias"), given.flag("mlp_bias")
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            bias=bias,
            output_bias=bias,
            rope=rope,
        ),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            activation=given.text("hidden_act", "silu"),
            bias=mlp_bias,
            down_bias=mlp_bias,
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
    )
