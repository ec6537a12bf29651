"""Nemotron-NAS and DeciLM: Llama's decoder with layers that a search has made different from each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_decoder import MLP, Attention, CausalLM, Decoder, Fields, Layer, Linear, Norm, shape_of

from core.api import CheckpointError, config_object

_MULTIPLE = 256
"""The sizes of MLPs are multiples of it."""

_OF_ATTENTION = ("sparsify", "window_length", "num_sink_tokens", "unshifted_sink", "is_mamba", "is_llama4", "mamba")
_OF_MLP = ("sparsify", "is_moe", "moe")
_OTHERWISE = ("bias", "qkv_bias", "o_proj_bias")
"""Keys of biases that configurations can ask for and no published model has."""


def read(config: Mapping[str, Any]) -> Decoder:
    """Describe the decoder of a configuration."""
    given = Fields(config, "DeciLMForCausalLM")
    given.refuse(*_OTHERWISE)
    given.expect("position_embedding_type", "rope")
    layers = tuple(_layer(given, attention, mlp) for attention, mlp in _blocks(given))
    if not any(isinstance(layer.attention, Attention) for layer in layers):
        raise CheckpointError("CORE-M126", "'block_configs' has no layer with attention.")
    return Decoder(
        vocab_size=given.integer("vocab_size"),
        hidden_size=given.integer("hidden_size"),
        layers=layers,
        final_norm=_norm(given, "norm"),
        max_positions=given.rope().context,
        dtype=given.dtype(),
        logit_scale=given.number("logit_scale", 1.0),
        tied=given.flag("tie_word_embeddings"),
    )


def _blocks(given: Fields) -> list[tuple[Fields, Fields]]:
    """Return what is said of attention and MLP of each layer; the first generation says the heads alone."""
    heads = given.config.get("num_key_value_heads_per_layer")
    key, blocks = "block_configs", given.config.get("block_configs")
    if blocks is None and isinstance(heads, list):
        key, blocks = "num_key_value_heads_per_layer", [{"attention": {"num_key_value_heads": one}} for one in heads]
    if (
        not isinstance(blocks, list)
        or len(blocks) != given.layers()
        or not all(isinstance(one, dict) for one in blocks)
    ):
        raise CheckpointError("CORE-M126", f"'{key}' must describe {given.layers()} layers.")
    return [(Fields(config_object(one, "attention")), Fields(config_object(one, "ffn"))) for one in blocks]


def _layer(given: Fields, attention: Fields, mlp: Fields) -> Layer:
    attends, feeds = _attention(given, attention), _mlp(given, mlp)
    return Layer(
        attention=attends,
        mlp=feeds,
        before_attention=None if attends is None else _norm(given, "input_layernorm"),
        before_mlp=None if feeds is None else _norm(given, "post_attention_layernorm"),
    )


def _attention(given: Fields, own: Fields) -> Attention | Linear | None:
    if own.flag("no_op"):
        return None
    if own.flag("replace_with_linear"):
        return Linear(name="self_attn.linear_attn")
    own.refuse(*_OF_ATTENTION)
    size, bias = given.head_dim(), given.flag("attention_bias")
    return Attention(
        heads=given.heads(),
        kv_heads=_kv_heads(given, own),
        head_dim=size,
        scale=size**-0.5,
        bias=bias,
        output_bias=bias,
        rope=given.rope(),
    )


def _kv_heads(given: Fields, own: Fields) -> int:
    """Return the heads of keys and values: their number, or how many heads of queries share one."""
    heads = given.heads()
    if own.config.get("num_key_value_heads") is not None:
        count = own.integer("num_key_value_heads")
    else:
        together = own.integer("n_heads_in_group")
        count = heads // together if heads % together == 0 else 0
    if not count or heads % count:
        text = (
            f"'num_attention_heads' is {heads}, which the groups of 'block_configs' cannot share: {own.config!r:.80}."
        )
        raise CheckpointError("CORE-M126", text)
    return count


def _mlp(given: Fields, own: Fields) -> MLP | Linear | None:
    if own.flag("no_op"):
        return None
    if own.flag("replace_with_linear"):
        return Linear(name="mlp.linear_mlp")
    own.refuse(*_OF_MLP)
    own.expect("gated", True)
    bias = given.flag("mlp_bias")
    return MLP(
        size=_inner(given, own),
        activation=own.text("hidden_act", given.text("hidden_act", "silu")),
        bias=bias,
        down_bias=bias,
    )


def _inner(given: Fields, own: Fields) -> int:
    """Return the size of an MLP: two thirds of so many times the hidden size, or the number itself."""
    if own.config.get("ffn_mult") is None:
        return own.integer("intermediate_size") if own.config else given.integer("intermediate_size")
    factor = own.number("ffn_mult", 1.0, least=1e-3, most=1e3)
    size = int(2 * factor * given.integer("hidden_size") / 3)
    return -(-size // _MULTIPLE) * _MULTIPLE


def _norm(given: Fields, name: str) -> Norm:
    return Norm(name=name, eps=given.number("rms_norm_eps", 1e-6, least=0.0))


shape = shape_of(read)


class Deci(CausalLM):
    """The architecture."""

    describe = staticmethod(read)
