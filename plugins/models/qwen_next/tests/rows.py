"""Tiny checkpoints of this family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_testing.families import TinyFamily

_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
}
_EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 28,
}
_TYPES = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
_COMMON = {**_LINEAR, "num_hidden_layers": 4, "head_dim": 24, "layer_types": _TYPES}


def _text(values: Mapping[str, Any]) -> Any:
    """Return transformers' text decoder of a multimodal configuration."""
    import transformers

    config = transformers.Qwen3_5MoeTextConfig(
        **{
            key: value
            for key, value in {**values, **values["text_config"]}.items()
            if key not in ("text_config", "architectures", "model_type")
        }
    )
    config._attn_implementation = "eager"
    return transformers.Qwen3_5MoeForCausalLM(config)


def _multimodal(name: str, tensor: Any) -> list[tuple[str, Any]]:
    """Return what a multimodal checkpoint calls a tensor; beside the last norm, what is left out of text."""
    found = [(name.replace("model.", "model.language_model.", 1), tensor)]
    if name == "model.norm.weight":
        found += [("model.visual.merger.norm.weight", tensor[:9]), ("mtp.norm.weight", tensor)]
    return found


ROWS = [
    TinyFamily("qwen3_next", "Qwen3NextForCausalLM", {"model_type": "qwen3_next", **_COMMON, **_EXPERTS}),
    TinyFamily(
        "qwen3_next_mixed",
        "Qwen3NextForCausalLM",
        {
            "model_type": "qwen3_next",
            **_COMMON,
            **_EXPERTS,
            "layer_types": None,
            "full_attention_interval": 2,
            "decoder_sparse_step": 2,
            "linear_conv_kernel_dim": 3,
            "attention_bias": True,
            "norm_topk_prob": False,
        },
    ),
    TinyFamily("qwen3_5", "Qwen3_5ForCausalLM", {"model_type": "qwen3_5_text", **_COMMON}),
    TinyFamily("qwen3_5_moe", "Qwen3_5MoeForCausalLM", {"model_type": "qwen3_5_moe_text", **_COMMON, **_EXPERTS}),
    TinyFamily(
        "qwen3_5_moe_multimodal",
        "Qwen3_5MoeForConditionalGeneration",
        {
            "model_type": "qwen3_5_moe",
            "text_config": {
                **_COMMON,
                **_EXPERTS,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e6,
                    "partial_rotary_factor": 0.5,
                    "mrope_section": [2, 2, 2],
                    "mrope_interleaved": True,
                },
            },
        },
        reference=_text,
        save=_multimodal,
        native={"text_config": {**_COMMON, **_EXPERTS, "head_dim": 32}},
    ),
]
