"""Nanbeige 4.2: Llama's decoder, whose layers run several times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import CheckpointError

_REFUSED = (
    "enable_double_loop_split",
    "loop_share_kv",
    "enable_hyper_connection",
    "enable_mhc",
    "enable_depth_attention",
    "ngram_insert_all_layers",
    "insert_ngram_layer_idx",
    "emb_neighbor_num",
    "qk_layernorm",
)
_MOST_LOOPS = 64


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "NanbeigeForCausalLM")
    given.refuse(*_REFUSED)
    rope, size, eps = given.rope(), given.head_dim(), given.number("rms_norm_eps", 1e-5, least=0.0)
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
        passes=_passes(given),
        norm_between=not given.flag("skip_loop_final_norm"),
    )


def _passes(given: Fields) -> int:
    """Return how often the layers run: one time more than there are weights of the losses between, or as it is said."""
    weights = given.config.get("loop_loss_weights")
    if not weights:
        return given.integer("num_loops", 1, most=_MOST_LOOPS)
    if not isinstance(weights, list) or len(weights) >= _MOST_LOOPS:
        raise CheckpointError("CORE-M126", f"'loop_loss_weights' is {weights!r:.60}, and must be a list of numbers.")
    return len(weights) + 1


shape = shape_of(read)


class Nanbeige(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
