"""InternLM: Llama's decoder, with biases (1 and 3), or with fused projections and names of its own (2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Norm, shape_of


def _llama(given: Fields, *, bias: bool, output_bias: bool, mlp_bias: bool = False) -> Decoder:
    """Describe what all generations have in common."""
    rope, eps = given.rope(), given.number("rms_norm_eps", 1e-6, least=0.0)
    layer = Layer(
        attention=Attention(
            heads=given.heads(),
            kv_heads=given.kv_heads(),
            head_dim=given.head_dim(),
            scale=given.head_dim() ** -0.5,
            bias=bias,
            output_bias=output_bias,
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
        pooling=given.pooling(),
        causal=given.causal,
    )


def read_first(config: Mapping[str, Any]) -> Decoder:
    """Describe the first generation. Its `rotary` has the base and a dynamic scaling, which by default does nothing."""
    rotary = config.get("rotary") or {}
    values = {"rope_theta": rotary.get("base", 10000), **config}
    if rotary.get("type") == "dynamic" and rotary.get("scaling_factor", 1.0) != 1.0:
        values["rope_scaling"] = {"rope_type": "dynamic", "factor": rotary["scaling_factor"]}
    given = Fields(values, "InternLMForCausalLM")
    bias = given.flag("bias", default=True)
    return _llama(given, bias=bias, output_bias=bias)


def read_second(config: Mapping[str, Any]) -> Decoder:
    """Describe the second generation: each group of queries is stored with its key and its value."""
    given = Fields(config, "InternLM2ForCausalLM")
    bias = given.flag("bias", default=True)
    decoder = _llama(given, bias=bias, output_bias=bias)
    layer = decoder.layers[0]
    own = replace(
        layer,
        attention=replace(layer.attention, name="attention", output="wo", fused="wqkv", split="interleaved"),
        mlp=replace(layer.mlp, name="feed_forward", gate="w1", up="w3", down="w2"),
        before_attention=replace(layer.before_attention, name="attention_norm"),
        before_mlp=replace(layer.before_mlp, name="ffn_norm"),
    )
    return replace(
        decoder,
        layers=(own,) * len(decoder.layers),
        embed="tok_embeddings",
        head="output",
        renames=(("v_head.", "score."),),
        skips=("output.*",) if decoder.pooling is not None else (),
    )


def read_third(config: Mapping[str, Any]) -> Decoder:
    """Describe the third generation."""
    given = Fields(config, "InternLM3ForCausalLM")
    # Configurations of transformers name them as Llama's do.
    qkv = given.flag("qkv_bias", default=given.flag("attention_bias"))
    others = given.flag("bias", default=given.flag("mlp_bias"))
    return _llama(given, bias=qkv, output_bias=others, mlp_bias=others)


first_shape, second_shape, third_shape = shape_of(read_first), shape_of(read_second), shape_of(read_third)


class InternLM(CausalLM):
    """The first generation."""

    describe = staticmethod(read_first)


class InternLM2(CausalLM):
    """The second generation."""

    describe = staticmethod(read_second)


class InternLM3(CausalLM):
    """The third generation."""

    describe = staticmethod(read_third)
