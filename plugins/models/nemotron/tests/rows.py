"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_HYBRID = {
    "num_hidden_layers": None,
    "ssm_state_size": 12,
    "mamba_num_heads": 8,
    "mamba_head_dim": 14,
    "n_groups": 1,
    "chunk_size": 16,
}

ROWS = [
    TinyFamily("nemotron", "NemotronForCausalLM", {"model_type": "nemotron", "hidden_act": "relu2", "head_dim": 20}),
    TinyFamily(
        "nemotron_bias",
        "NemotronForCausalLM",
        {
            "model_type": "nemotron",
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "partial_rotary_factor": 0.25,
            "head_dim": 24,
            "norm_eps": 1e-3,
            "rope_theta": 1000.0,
        },
        spread=0.2,
    ),
    TinyFamily(
        "nemotron_h",
        "NemotronHForCausalLM",
        {
            "model_type": "nemotron_h",
            **_HYBRID,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"],
            "n_routed_experts": 6,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "routed_scaling_factor": 1.5,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 36,
            "head_dim": 20,
        },
    ),
    TinyFamily(
        "nemotron_h_latent",
        "NemotronHForCausalLM",
        {
            "model_type": "nemotron_h",
            **_HYBRID,
            "layers_block_type": ["moe", "linear_attention", "full_attention", "moe"],
            "n_routed_experts": 5,
            "num_experts_per_tok": 3,
            "moe_latent_size": 48,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 36,
            "norm_topk_prob": False,
            "head_dim": 20,
        },
    ),
    TinyFamily(
        "nemotron_h_biased",
        "NemotronHForCausalLM",
        {
            "model_type": "nemotron_h",
            **_HYBRID,
            "layers_block_type": None,
            "hybrid_override_pattern": "*M-M",
            "n_groups": 2,
            "use_bias": True,
            "use_conv_bias": False,
            "mlp_bias": True,
            "time_step_min": 0.5,
            "head_dim": 24,
        },
    ),
]

POOLED = [
    TinyFamily(
        "nemotron_scored",
        "NemotronForSequenceClassification",
        {"model_type": "nemotron", "pad_token_id": 0, "hidden_act": "relu2"},
    ),
]
