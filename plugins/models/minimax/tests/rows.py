"""Tiny checkpoints of this family."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from core_testing.families import TinyFamily

_spec = spec_from_file_location("reference_text01", Path(__file__).with_name("reference_text01.py"))
_text01 = module_from_spec(_spec)
_spec.loader.exec_module(_text01)

_MINIMAX = {
    "model_type": "minimax_m2",
    "num_local_experts": 7,
    "num_experts_per_tok": 3,
    "head_dim": 24,
}


def _text(values: Mapping[str, Any]) -> Any:
    """Return transformers' model, whose decays are what they are: no weights that could be random."""
    import transformers

    config = transformers.MiniMaxConfig(**{key: value for key, value in values.items() if key != "architectures"})
    config._attn_implementation = "eager"
    model = transformers.MiniMaxForCausalLM(config)
    for module in model.modules():
        module._non_persistent_buffers_set.update(module._buffers)
    return model


def _stored(name: str, tensor: Any) -> list[tuple[str, Any]]:
    """Return what checkpoints call a tensor: each expert has its own."""
    name = name.replace(".mlp.", ".block_sparse_moe.")
    if name.endswith("experts.gate_up_proj"):
        halves = [(expert, *one.chunk(2)) for expert, one in enumerate(tensor)]
        path = name.removesuffix(".gate_up_proj")
        return [
            (f"{path}.{expert}.{part}.weight", half)
            for expert, *both in halves
            for part, half in zip(("w1", "w3"), both, strict=True)
        ]
    if name.endswith("experts.down_proj"):
        path = name.removesuffix(".down_proj")
        return [(f"{path}.{expert}.w2.weight", one) for expert, one in enumerate(tensor)]
    return [(name, tensor)]


_FACTORS = {
    "full_attn_alpha_factor": 1.5,
    "full_attn_beta_factor": 0.75,
    "linear_attn_alpha_factor": 1.25,
    "linear_attn_beta_factor": 0.5,
    "mlp_alpha_factor": 2.0,
    "mlp_beta_factor": 1.5,
}
_TEXT = {"model_type": "minimax", "num_hidden_layers": 4, "num_local_experts": 5, "block_size": 16}
_PUBLISHED = {
    "model_type": "minimax_text_01",
    "num_hidden_layers": 4,
    "num_local_experts": 5,
    "num_experts_per_tok": 2,
    "head_dim": 24,
    "rotary_dim": 12,
    "rope_theta": 1000.0,
    "rms_norm_eps": 1e-5,
    "attn_type_list": [0, 1, 0, 0],
    "postnorm": True,
    "layernorm_full_attention_alpha": 1.5,
    "layernorm_full_attention_beta": 0.75,
    "layernorm_linear_attention_alpha": 1.25,
    "layernorm_linear_attention_beta": 0.5,
    "layernorm_mlp_alpha": 2.0,
    "layernorm_mlp_beta": 1.5,
}

ROWS = [
    TinyFamily("minimax_m2", "MiniMaxM2ForCausalLM", _MINIMAX | {"rotary_dim": 12}),
    TinyFamily(
        "minimax_m2_whole",
        "MiniMaxM2ForCausalLM",
        _MINIMAX | {"num_local_experts": 5, "num_experts_per_tok": 1, "tie_word_embeddings": True, "rope_theta": 900.0},
    ),
    TinyFamily("minimax", "MiniMaxForCausalLM", _TEXT, reference=_text, save=_stored),
    TinyFamily(
        "minimax_factors",
        "MiniMaxForCausalLM",
        {
            **_TEXT,
            **_FACTORS,
            "head_dim": 24,
            "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        },
        reference=_text,
        save=_stored,
    ),
    TinyFamily("minimax_text01", "MiniMaxText01ForCausalLM", _PUBLISHED, reference=_text01.Text01),
    TinyFamily(
        "minimax_m1",  # heads that are no power of two
        "MiniMaxM1ForCausalLM",
        {
            **_PUBLISHED,
            "model_type": "minimax_m1",
            "num_attention_heads": 6,
            "rotary_dim": 24,
            "attn_type_list": [0, 0, 0, 1],
            "shared_intermediate_size": 0,
            "tie_word_embeddings": False,
        },
        reference=_text01.Text01,
        native={"head_dim": 32},
    ),
]
