"""Tiny checkpoints of this family."""

from __future__ import annotations

from core_testing.families import TinyFamily

_LONGCAT = {
    "model_type": "longcat_flash",
    "num_hidden_layers": None,
    "num_key_value_heads": None,
    "intermediate_size": None,
    "num_layers": 2,
    "ffn_hidden_size": 88,
    "expert_ffn_hidden_size": 36,
    "kv_lora_rank": 24,
    "q_lora_rank": 28,
    "qk_nope_head_dim": 14,
    "qk_rope_head_dim": 12,
    "head_dim": 12,
    "v_head_dim": 10,
    "n_routed_experts": 7,
    "zero_expert_num": 5,
    "moe_topk": 4,
    "routed_scaling_factor": 1.7,
}


def _row(name: str, **config: object) -> TinyFamily:
    values = {**_LONGCAT, **config}
    return TinyFamily(name, "LongcatFlashForCausalLM", values, native={})


ROWS = [
    _row("longcat_flash"),
    _row(
        "longcat_flash_scaled",
        num_layers=1,
        n_routed_experts=9,
        zero_expert_num=3,
        moe_topk=2,
        attention_bias=True,
        tie_word_embeddings=True,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    ),
]
