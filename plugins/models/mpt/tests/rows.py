"""Tiny checkpoints of this family."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core_testing.families import TinyFamily

_spec = spec_from_file_location("reference_of_mpt", Path(__file__).with_name("reference_mpt.py"))
mpt = module_from_spec(_spec)
_spec.loader.exec_module(mpt)

_WITHOUT = dict.fromkeys(
    (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
    )
)
_SIZES = {"model_type": "mpt", **_WITHOUT, "d_model": 80, "n_heads": 4, "n_layers": 3, "max_seq_len": 256}
_WIDE = {"d_model": 64}

ROWS = [
    TinyFamily("mpt", "MptForCausalLM", {**_SIZES, "attn_config": {"alibi": True}}, native=_WIDE),
    TinyFamily(
        "mpt_clipped",
        "MptForCausalLM",
        {
            **_SIZES,
            "n_heads": 5,
            "attn_config": {"alibi": True, "clip_qkv": 2.0, "softmax_scale": 0.3},
            "tie_word_embeddings": False,
        },
        native=_WIDE | {"n_heads": 4},
    ),
    TinyFamily(
        "mpt_learned",
        "MPTForCausalLM",
        {
            **_SIZES,
            "attn_config": {"alibi": False, "clip_qkv": 3.0, "qk_ln": True},
            "learned_pos_emb": True,
            "no_bias": False,
            "expansion_ratio": 2,
            "logit_scale": "inv_sqrt_d_model",
        },
        reference=mpt.MPT,
        native=_WIDE,
    ),
    TinyFamily(
        "mpt_grouped",
        "MPTForCausalLM",
        {
            **_SIZES,
            "attn_config": {"alibi": False, "attn_type": "grouped_query_attention", "kv_n_heads": 2, "qk_ln": True},
            "norm_type": "low_precision_layernorm",
        },
        reference=mpt.MPT,
        native=_WIDE,
    ),
    TinyFamily(
        "mpt_one_head",
        "MPTForCausalLM",
        {
            **_SIZES,
            # transformers' class takes 8 as the greatest bias, whatever the configuration says.
            "attn_config": {"alibi": True, "alibi_bias_max": 4, "attn_type": "multiquery_attention"},
            "logit_scale": 0.5,
        },
        reference=mpt.MPT,
        native=_WIDE,
    ),
]
