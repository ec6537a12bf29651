"""Architectures with mixtures of experts. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_plugin_gguf.architecture import Architecture
from core_plugin_gguf.kin_llama import ATTENTION, MODEL, NORMS, QK_NORMS
from core_plugin_gguf.reads import experts

_ROUTER: Mapping[str, str] = {"ffn_gate_inp": "mlp.gate"}
_EXPERTS: Mapping[str, str] = {f"ffn_{part}_exps": f"mlp.experts.{{}}.{part}_proj" for part in ("gate", "up", "down")}
_SHARED: Mapping[str, str] = {
    **{f"ffn_{part}_shexp": f"mlp.shared_expert.{part}_proj" for part in ("gate", "up", "down")},
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}


def _moe(model: str, model_type: str, **differs: Any) -> Architecture:
    usual: dict[str, Any] = {
        "blocks": {**NORMS, **ATTENTION, **_ROUTER},
        "modules": MODEL,
        "stacked": _EXPERTS,
        "experts": True,
        "reads": experts(expert_feed_forward_length="moe_intermediate_size"),
        "values": {"hidden_act": "silu"},
    }
    return Architecture(model=model, model_type=model_type, **{**usual, **differs})


EXPERTS_KIN: Mapping[str, Architecture] = {
    "qwen2moe": _moe(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        blocks={**NORMS, **ATTENTION, **_ROUTER, **_SHARED},
        rows=frozenset({"ffn_gate_inp_shexp"}),
        reads=experts(
            expert_feed_forward_length="moe_intermediate_size",
            expert_shared_feed_forward_length="shared_expert_intermediate_size",
        ),
        values={"hidden_act": "silu", "norm_topk_prob": False},
    ),
    "qwen3moe": _moe(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        blocks={**NORMS, **ATTENTION, **QK_NORMS, **_ROUTER},
        values={"hidden_act": "silu", "norm_topk_prob": True},
    ),
}
