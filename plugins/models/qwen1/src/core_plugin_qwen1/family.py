"""Qwen of the first generation: Llama's decoder with fused, biased projections and names of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of

from core.api import MOST_POSITIONS, CheckpointError, RopeConfig


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "QWenLMHeadModel")
    given.refuse("visual", "audio")
    if given.number("rotary_pct", 1.0) != 1.0:
        raise CheckpointError("CORE-M126", f"'rotary_pct' is {config['rotary_pct']!r}, which is not supported.")
    hidden, head_dim, eps = given.integer("hidden_size"), _head_dim(given), given.number("layer_norm_epsilon", 1e-6)
    inner = given.integer("intermediate_size")
    rope = RopeConfig(
        head_dim=head_dim,
        rotary_dim=head_dim,
        theta=given.number("rotary_emb_base", 10000.0, most=1e12),
        max_positions=_positions(given),
    )
    bias = not given.flag("no_bias", default=True)
    layer = Layer(
        attention=Attention(
            name="attn",
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=head_dim,
            scale=head_dim**-0.5,
            fused="c_attn",
            output="c_proj",
            bias=True,
            output_bias=bias,
            rope=rope,
        ),
        # The configuration counts gate and up together.
        mlp=MLP(size=inner // 2, gate="w2", up="w1", down="c_proj", bias=bias, down_bias=bias),
        before_attention=Norm(name="ln_1", eps=eps),
        before_mlp=Norm(name="ln_2", eps=eps),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=hidden,
        layers=(layer,) * given.layers(),
        final_norm=Norm(name="ln_f", eps=eps),
        max_positions=rope.context,
        dtype=given.dtype("bfloat16"),
        root="transformer",
        layer="h.{}",
        embed="wte",
        tied=given.flag("tie_word_embeddings"),
    )


def _head_dim(given: Fields) -> int:
    """Return the size of a head; `kv_channels` of them all are the size of the projections."""
    return given.integer("kv_channels", given.head_dim())


def _positions(given: Fields) -> int:
    """Return the longest context: that of the training where what comes behind it is rotated or scaled otherwise."""
    positions = given.integer("max_position_embeddings", 8192, most=MOST_POSITIONS)
    trained = given.integer("seq_length", positions, most=MOST_POSITIONS)
    longer = given.flag("use_dynamic_ntk", default=True) or given.flag("use_logn_attn", default=True)
    return min(positions, trained) if longer else positions


shape = shape_of(read)


class QWen(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
