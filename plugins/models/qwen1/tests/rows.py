"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily
from core_testing.reference_decoder import Reference, ReferenceDecoder, renamed, sizes_of


def reference(config):
    """Return the published formula."""
    given = sizes_of(config) | {
        "inner": config["intermediate_size"] // 2,
        "head_dim": config["kv_channels"],
        "eps": config["layer_norm_epsilon"],
        "theta": config.get("rotary_emb_base", 10000.0),
    }
    bias = not config.get("no_bias", True)
    tied = config.get("tie_word_embeddings", False)
    return ReferenceDecoder(
        Reference(**given, qkv="joined", qkv_bias=True, output_bias=bias, mlp_bias=bias, down_bias=bias, tied=tied)
    )


_NAMES = (
    ("model.", "transformer."),
    ("embed_tokens", "wte"),
    ("layers.", "h."),
    ("self_attn.qkv_proj", "attn.c_attn"),
    ("self_attn.o_proj", "attn.c_proj"),
    ("mlp.gate_proj", "mlp.w2"),
    ("mlp.up_proj", "mlp.w1"),
    ("mlp.down_proj", "mlp.c_proj"),
    ("input_layernorm", "ln_1"),
    ("post_attention_layernorm", "ln_2"),
    ("transformer.norm", "transformer.ln_f"),
)
_QWEN = {
    "model_type": "qwen",
    "num_key_value_heads": None,
    "kv_channels": 20,
    "layer_norm_epsilon": 1e-6,
    "seq_length": 128,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
}


def row(name, **changes):
    """Return a row; its heads have 32 dimensions where a CPU's native attention takes them."""
    native = {"kv_channels": 32, "hidden_size": 128}
    config = {**_QWEN, **changes}
    return TinyFamily(name, "QWenLMHeadModel", config, reference=reference, save=renamed(*_NAMES), native=native)


ROWS = [
    row("qwen1"),
    row("qwen1_bias", no_bias=False, tie_word_embeddings=True, rotary_emb_base=5000.0, layer_norm_epsilon=1e-5),
]
