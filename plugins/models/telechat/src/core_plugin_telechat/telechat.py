"""TeleChat 1 and 2: Llama's decoder with Bloom's names, and a rotary base made for the length of training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import MOST_POSITIONS, RopeConfig

_KEYS = {
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "ffn_hidden_size",
    "rms_norm_eps": "layer_norm_epsilon",
    "max_position_embeddings": "seq_length",
}
_POSITIONS = 8192


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "TeleChat2ForCausalLM", _KEYS)
    given.refuse("apply_residual_connection_post_layernorm", "rope_scaling")
    given.expect("use_RMSNorm", True)
    rope, size = _rope(given), given.head_dim()
    layer = Layer(
        attention=Attention(
            name="self_attention",
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=size,
            scale=size**-0.5,
            projections=("query", "key", "value"),
            fused_kv="key_value",
            split="interleaved",
            output="dense",
            output_bias=True,
            rope=rope,
        ),
        mlp=MLP(size=given.integer("intermediate_size"), activation=given.text("hidden_act", "silu"), down_bias=True),
        before_attention=_norm(given, "input_layernorm"),
        before_mlp=_norm(given, "post_attention_layernorm"),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=_norm(given, "ln_f"),
        max_positions=rope.context,
        dtype=given.dtype("float16"),
        root="transformer",
        layer="h.{}",
        embed="word_embeddings",
        embed_norm=_norm(given, "word_embeddings_layernorm") if given.flag("embed_layernorm") else None,
        tied=given.flag("tie_word_embeddings", default=True),
        layers_key=given.key("num_hidden_layers"),
    )


def _rope(given: Fields) -> RopeConfig:
    """Return the rotation: NTK scaling from the length that the base was made for to that of training."""
    trained = given.integer("training_seqlen", given.positions(_POSITIONS), most=MOST_POSITIONS)
    base, size = given.integer("base_seqlen", trained, most=MOST_POSITIONS), given.head_dim()
    growth = max(2 ** math.ceil(math.log2(trained / base) + 1) - 1, 1)
    theta = given.number("rope_theta", 10000.0, least=1.0, most=1e12) * growth ** (size / (size - 2))
    here = {"max_position_embeddings": trained, "rope_theta": theta}
    return Fields(here).rope(size)


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, eps=given.number("rms_norm_eps", 1e-5, least=0.0))


shape = shape_of(read)


class TeleChat(CausalLM):
    """The architectures."""

    describe = staticmethod(read)
