"""GPT-NeoX (Pythia): attention and MLP side by side, a quarter of each head rotates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, shape_of

from core_plugin_gpt.usual import layer_norm, wide

_KEYS = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "GPTNeoXForCausalLM", _KEYS)
    bias, rope = given.flag("attention_bias", default=True), given.rope(partial=0.25)
    layer = Layer(
        attention=Attention(
            name="attention",
            heads=given.heads(),
            kv_heads=given.heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            fused="query_key_value",
            split="interleaved",
            output="dense",
            bias=bias,
            output_bias=bias,
            rope=rope,
        ),
        mlp=wide(given, ("dense_h_to_4h", "dense_4h_to_h"), "gelu"),
        before_attention=layer_norm(given, "input_layernorm"),
        before_mlp=layer_norm(given, "post_attention_layernorm"),
        parallel=given.flag("use_parallel_residual", default=True),
    )
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=(layer,) * given.layers(),
        final_norm=layer_norm(given, "final_layer_norm"),
        max_positions=rope.context,
        dtype=given.dtype("float16"),
        root="gpt_neox",
        embed="embed_in",
        head="embed_out",
        tied=given.flag("tie_word_embeddings"),
        causal=given.causal,
        pooling=given.pooling(),
        renames=(("lm_head.", "embed_out."),),
        skips=("*.attention.bias", "*.attention.masked_bias"),
    )


shape = shape_of(read)


class GPTNeoX(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
