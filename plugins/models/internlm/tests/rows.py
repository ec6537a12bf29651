"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of


def first(config):
    """Return the published formula of the first generation."""
    given = sizes_of(config) | {"theta": config.get("rotary", {}).get("base", 10000.0)}
    bias = config.get("bias", True)
    return ReferenceDecoder(Reference(**given, qkv_bias=bias, output_bias=bias))


def second(config):
    """Return the published formula of the second generation."""
    bias = config.get("bias", True)
    return ReferenceDecoder(Reference(**sizes_of(config), qkv="turns", qkv_bias=bias, output_bias=bias))


def third(config):
    """Return the published formula of the third generation."""
    bias = config.get("bias", False)
    given = Reference(
        **sizes_of(config),
        qkv_bias=config.get("qkv_bias", False),
        output_bias=bias,
        mlp_bias=bias,
        down_bias=bias,
        tied=config.get("tie_word_embeddings", False),
    )
    return ReferenceDecoder(given)


NAMES = (
    ("embed_tokens", "tok_embeddings"),
    ("lm_head", "output"),
    ("self_attn.qkv_proj", "attention.wqkv"),
    ("self_attn.o_proj", "attention.wo"),
    ("mlp.gate_proj", "feed_forward.w1"),
    ("mlp.up_proj", "feed_forward.w3"),
    ("mlp.down_proj", "feed_forward.w2"),
    ("post_attention_layernorm", "ffn_norm"),
    ("input_layernorm", "attention_norm"),
)
_FIRST = {"model_type": "internlm", "num_key_value_heads": None}
_SECOND = {"model_type": "internlm2"}
_THIRD = {"model_type": "internlm3"}
_WIDE = {"hidden_size": 128}

ROWS = [
    TinyFamily("internlm", "InternLMForCausalLM", _FIRST, reference=first, save=renamed(), native=_WIDE),
    TinyFamily(
        "internlm_plain",
        "InternLMForCausalLM",
        {**_FIRST, "bias": False, "rotary": {"base": 5000, "type": "dynamic"}},
        reference=first,
        save=renamed(),
        native=_WIDE,
    ),
    TinyFamily(
        "internlm2",
        "InternLM2ForCausalLM",
        {**_SECOND, "bias": False, "rms_norm_eps": 1e-5, "rope_theta": 50000.0},
        reference=second,
        save=renamed(*NAMES),
        native=_WIDE,
    ),
    TinyFamily("internlm2_bias", "InternLM2ForCausalLM", _SECOND, reference=second, save=renamed(*NAMES), native=_WIDE),
    TinyFamily("internlm3", "InternLM3ForCausalLM", {**_THIRD, "head_dim": 24}, reference=third, save=renamed()),
    TinyFamily(
        "internlm3_bias",
        "InternLM3ForCausalLM",
        {**_THIRD, "qkv_bias": True, "bias": True, "tie_word_embeddings": True},
        reference=third,
        save=renamed(),
    ),
    TinyFamily("internlm3_qkv", "InternLM3ForCausalLM", {**_THIRD, "qkv_bias": True}, reference=third, save=renamed()),
]
