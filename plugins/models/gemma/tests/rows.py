"""Tiny checkpoints of this family."""

from __future__ import annotations

import json

from core_testing.families import TinyFamily

_HEADS = {"head_dim": 20, "query_pre_attn_scalar": 24}
_WINDOWED = {**_HEADS, "sliding_window": 6, "num_hidden_layers": 4}
_CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 10.0}
_UNTIED = {"tie_word_embeddings": False}
"""With a tied head a random model repeats its last token, which proves little."""

_ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": {
        "rope_type": "linear",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}

_RNJ1 = {
    "model_type": "gemma3_text",
    **_HEADS,
    **_UNTIED,
    "sliding_window": 6,
    "layer_types": ["full_attention"] * 3,
    "final_logit_softcapping": 10.0,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 64.0,
    },
}


def rnj1(config):
    """Return Gemma 3 with one rotation for all layers, of which none has a window."""
    import transformers

    ropes = dict.fromkeys(("full_attention", "sliding_attention"), config["rope_parameters"])
    given = {key: value for key, value in config.items() if key != "architectures"} | {"rope_parameters": ropes}
    made = transformers.Gemma3TextConfig(**json.loads(json.dumps(given)))
    made._attn_implementation = "eager"
    return transformers.Gemma3ForCausalLM(made)


_GEMMA4 = {
    "model_type": "gemma4_text",
    "head_dim": 20,
    "global_head_dim": 24,
    "sliding_window": 6,
    "num_hidden_layers": 6,
    "layer_types": [*("sliding_attention", "sliding_attention", "full_attention") * 2],
    "vocab_size_per_layer_input": 377,
    "hidden_size_per_layer_input": 12,
    "tie_word_embeddings": False,
}
_NATIVE4 = {"head_dim": 32, "global_head_dim": 48}

_GEMMA3N = {
    "model_type": "gemma3n_text",
    "head_dim": 20,
    "sliding_window": 6,
    "num_hidden_layers": 6,
    "layer_types": [*("sliding_attention", "sliding_attention", "full_attention") * 2],
    "num_kv_shared_layers": 3,
    # Fewer rows than token ids, as published checkpoints have it.
    "vocab_size_per_layer_input": 280,
    "hidden_size_per_layer_input": 12,
    "altup_num_inputs": 3,
    "laurel_rank": 10,
    "activation_sparsity_pattern": [0.8, 0.0, 0.6, 0.0, 0.3, 0.0],
    "tie_word_embeddings": False,
}

ROWS = [
    TinyFamily("gemma", "GemmaForCausalLM", {"model_type": "gemma", "head_dim": 24, **_UNTIED}),
    TinyFamily(
        "gemma_mqa",
        "GemmaForCausalLM",
        {"model_type": "gemma", "hidden_act": "gelu", "head_dim": 20, "num_key_value_heads": 1, "attention_bias": True},
        spread=0.2,
    ),
    TinyFamily(
        "gemma2",
        "Gemma2ForCausalLM",
        {"model_type": "gemma2", **_WINDOWED, **_CAPS, **_UNTIED},
    ),
    TinyFamily(
        "gemma2_uncapped",
        "Gemma2ForCausalLM",
        {"model_type": "gemma2", **_WINDOWED, **dict.fromkeys(_CAPS), "attention_bias": True},
        spread=0.2,
    ),
    TinyFamily(
        "gemma3",
        "Gemma3ForCausalLM",
        {"model_type": "gemma3_text", **_WINDOWED, **_UNTIED, "sliding_window_pattern": 3, "rope_parameters": _ROPES},
    ),
    TinyFamily(
        "gemma3_types",
        "Gemma3ForCausalLM",
        {
            "model_type": "gemma3_text",
            **_WINDOWED,
            "layer_types": [*("full_attention", "sliding_attention") * 2],
            "final_logit_softcapping": 10.0,
            "attention_bias": True,
        },
        spread=0.2,
    ),
    TinyFamily("rnj1", "Rnj1ForCausalLM", _RNJ1, reference=rnj1),
    TinyFamily(
        "vaultgemma",
        "VaultGemmaForCausalLM",
        {"model_type": "vaultgemma", **_WINDOWED, **_CAPS, **_UNTIED},
    ),
    TinyFamily("gemma4", "Gemma4ForCausalLM", _GEMMA4, native=_NATIVE4),
    TinyFamily(
        "gemma4_shared",
        "Gemma4ForCausalLM",
        {**_GEMMA4, "num_kv_shared_layers": 3, "use_double_wide_mlp": True, "final_logit_softcapping": 10.0},
        native=_NATIVE4,
    ),
    TinyFamily(
        "gemma4_values",
        "Gemma4ForCausalLM",
        {
            **_GEMMA4,
            "hidden_size_per_layer_input": 0,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "attention_bias": True,
        },
        native=_NATIVE4,
    ),
    TinyFamily(
        "gemma4_moe",
        "Gemma4ForCausalLM",
        {
            **_GEMMA4,
            "hidden_size_per_layer_input": 0,
            "enable_moe_block": True,
            "num_experts": 5,
            "top_k_experts": 2,
            "moe_intermediate_size": 36,
        },
        native=_NATIVE4,
        programs=False,  # factors of experts are looked up by torch
    ),
    TinyFamily("gemma3n", "Gemma3nForCausalLM", _GEMMA3N),
    TinyFamily(
        "gemma3n_plain",
        "Gemma3nForCausalLM",
        {
            **_GEMMA3N,
            "num_kv_shared_layers": 0,
            "intermediate_size": [88, 72, 88, 96, 88, 80],
            "activation_sparsity_pattern": None,
            "altup_active_idx": 1,
            "altup_num_inputs": 2,
            "altup_correct_scale": False,
            "final_logit_softcapping": 12.0,
            "attention_bias": True,
        },
    ),
    TinyFamily(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        {"model_type": "recurrent_gemma", "num_hidden_layers": 4, "attention_window_size": 8},
        native={"hidden_size": 128},
    ),
    TinyFamily(
        "recurrent_gemma_wide",
        "RecurrentGemmaForCausalLM",
        {
            "model_type": "recurrent_gemma",
            "block_types": ["attention", "recurrent"],
            "lru_width": 96,
            "conv1d_width": 3,
            "attention_bias": True,
            "logits_soft_cap": 12.0,
        },
        native={"hidden_size": 128},
    ),
]
