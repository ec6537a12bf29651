"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {"mamba_n_heads": 8, "mamba_d_state": 12, "mamba_chunk_size": 16}
_NATIVE = {"hidden_size": 128, "mamba_d_head": "auto"}

ROWS = [
    TinyFamily(
        "bamba",
        "BambaForCausalLM",
        {"model_type": "bamba", "attn_layer_indices": [1], **_SIZES},
        native=_NATIVE,
    ),
    TinyFamily(
        "bamba_biased",
        "BambaForCausalLM",
        {
            "model_type": "bamba",
            "num_hidden_layers": 4,
            "attn_layer_indices": [0, 2],
            "mamba_n_groups": 2,
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "attention_bias": True,
            "mlp_bias": True,
            "time_step_limit": [0.5, 0.9],
            "tie_word_embeddings": True,
            **_SIZES,
        },
        native=_NATIVE,
    ),
]
