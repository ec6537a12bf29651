"""GPT-J and CodeGen: attention and MLP side by side behind one norm, neighbours rotate, the head has a bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import Attention, CausalLM, Decoder, Fields, Layer, shape_of

from core.api import CheckpointError, RopeConfig
from core_plugin_gpt.usual import KEYS, decoder_of, layer_norm, wide

_TURNS = 4
"""CodeGen was trained on so many devices, each of which had queries, values and keys of its own heads."""


def read_gptj(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a GPT-J configuration."""
    given = Fields(config, "GPTJForCausalLM", KEYS)
    heads, head_dim = given.heads(), given.head_dim()
    attention = Attention(
        name="attn",
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        output="out_proj",
        rope=_rope(given, head_dim),
    )
    return _around(given, attention)


def read_codegen(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a CodeGen configuration."""
    given = Fields(config, "CodeGenForCausalLM", KEYS)
    heads, head_dim = given.heads(), given.head_dim()
    if heads % _TURNS:
        raise CheckpointError("CORE-M126", f"'{given.key('num_attention_heads')}' is {heads}, no multiple of {_TURNS}.")
    attention = Attention(
        name="attn",
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        projections=("query", "value", "key"),
        order="qvk",
        fused="qkv_proj",
        split="interleaved",
        turns=_TURNS,
        output="out_proj",
        rope=_rope(given, head_dim),
    )
    return _around(given, attention)


def _around(given: Fields, attention: Attention) -> Decoder:
    given.refuse("tie_word_embeddings")
    layer = Layer(
        attention=attention,
        mlp=wide(given, ("fc_in", "fc_out")),
        before_attention=layer_norm(given, "ln_1"),
        parallel=True,
    )
    return decoder_of(given, [layer] * given.layers(), learned=False, tied=False, head_bias=True)


def _rope(given: Fields, head_dim: int) -> RopeConfig:
    """Return the rotary embedding, of which the configuration states the number of dimensions."""
    rotary_dim = given.integer("rotary_dim", 64)
    if rotary_dim > head_dim or rotary_dim % 2:
        raise CheckpointError("CORE-M126", f"'rotary_dim' is {rotary_dim}: no pairs of a head's {head_dim} dimensions.")
    return RopeConfig(head_dim=head_dim, rotary_dim=rotary_dim, max_positions=given.positions(2048), interleaved=True)


shape_gptj, shape_codegen = shape_of(read_gptj), shape_of(read_codegen)


class GPTJ(CausalLM):
    """The architecture of GPT-J."""

    describe = staticmethod(read_gptj)


class CodeGen(CausalLM):
    """The architecture of CodeGen."""

    describe = staticmethod(read_codegen)
