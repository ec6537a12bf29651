"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_SIZES = {"model_type": "zamba2", "n_mamba_heads": 8, "mamba_d_state": 12, "chunk_size": 16}
_NATIVE = {"hidden_size": 128}

ROWS = [
    TinyFamily(
        "zamba2",
        "Zamba2ForCausalLM",
        {
            **_SIZES,
            "num_hidden_layers": 5,
            "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid", "hybrid"],
            "num_mem_blocks": 2,
            "num_key_value_heads": 4,
            "use_shared_attention_adapter": True,
            "use_mem_rope": True,
            "adapter_rank": 10,
        },
        native=_NATIVE,
        spread=0.15,
    ),
    TinyFamily(
        "zamba2_biased",
        "Zamba2ForCausalLM",
        {
            **_SIZES,
            "num_hidden_layers": 4,
            "layers_block_type": ["hybrid", "linear_attention", "hybrid", "linear_attention"],
            "mamba_ngroups": 2,
            "add_bias_linear": True,
            "time_step_min": 0.5,
            "adapter_rank": 12,
            "tie_word_embeddings": False,
        },
        native=_NATIVE,
        spread=0.15,
    ),
    TinyFamily(
        "zamba2_repeated",  # stores the block once for each layer that reads it
        "Zamba2ForCausalLM",
        {**_SIZES, "layers_block_type": ["mamba", "hybrid", "hybrid"], "adapter_rank": 6},
        save=lambda name, tensor: [(name, tensor)],
        native=_NATIVE,
        spread=0.15,
    ),
]
