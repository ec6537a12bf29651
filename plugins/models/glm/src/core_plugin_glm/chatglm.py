"""ChatGLM2, ChatGLM3 and GLM-4-9B with the names that their makers gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import RopeConfig

_KEYS = {
    "vocab_size": "padded_vocab_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "ffn_hidden_size",
    "head_dim": "kv_channels",
    "num_key_value_heads": "multi_query_group_num",
    "max_position_embeddings": "seq_length",
}
_REFUSED = (
    "apply_residual_connection_post_layernorm",
    "position_encoding_2d",
    "pre_seq_len",
    "quantization_bit",
    "vision_config",
)
_THETA = 10000.0


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "ChatGLMModel", _KEYS)
    given.refuse(*_REFUSED)
    rope, bias = _rope(given), given.flag("add_bias_linear")
    layer = Layer(
        attention=_attention(given, rope, bias=bias),
        mlp=MLP(
            size=given.integer("intermediate_size"),
            fused="dense_h_to_4h",
            down="dense_4h_to_h",
            bias=bias,
            down_bias=bias,
        ),
        before_attention=_norm(given, "input_layernorm"),
        before_mlp=_norm(given, "post_attention_layernorm"),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=_norm(given, "encoder.final_layernorm") if given.flag("post_layer_norm", default=True) else None,
        max_positions=rope.context,
        dtype=given.dtype("float16"),
        root="transformer",
        layer="encoder.layers.{}",
        embed="embedding.word_embeddings",
        head="transformer.output_layer",
        tied=given.flag("tie_word_embeddings"),
        skips=("transformer.rotary_pos_emb.inv_freq",),
        layers_key="num_layers",
    )


def _rope(given: Fields) -> RopeConfig:
    """Half of a head is rotated; longer contexts have a greater base."""
    theta = _THETA * given.number("rope_ratio", 1.0, least=1e-3)
    return given.rope(theta=theta, partial=0.5, interleaved=given.flag("original_rope", default=True))


def _attention(given: Fields, rope: RopeConfig, *, bias: bool) -> Attention:
    # Queries, keys and values of all heads one after another; or, where each head has its own, head by head.
    shared = given.flag("multi_query_attention")
    return Attention(
        name="self_attention",
        heads=given.heads(),
        kv_heads=given.kv_heads() if shared else given.heads(),
        head_dim=given.head_dim(),
        scale=given.head_dim() ** -0.5,
        fused="query_key_value",
        split="halves" if shared else "interleaved",
        output="dense",
        bias=bias or given.flag("add_qkv_bias"),
        output_bias=bias,
        rope=rope,
    )


def _norm(given: Fields, name: str) -> Norm:
    rms = given.flag("rmsnorm", default=True)
    eps = given.number("layernorm_epsilon", 1e-5, least=0.0)
    return Norm(name=name, kind="rms" if rms else "layer", eps=eps, bias=not rms)


shape = shape_of(read)


class ChatGLM(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
