"""Tiny checkpoints of this family."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core_testing.families import TinyFamily

_spec = spec_from_file_location("reference_grok", Path(__file__).with_name("reference_grok.py"))
_grok = module_from_spec(_spec)
_spec.loader.exec_module(_grok)

_SHARED = {
    "model_type": "grok-1",
    "head_dim": 20,
    "rms_norm_eps": 1e-3,
    "embedding_multiplier_scale": 3.0,
    "output_multiplier_scale": 0.4,
    "attn_output_multiplier": 0.3,
}
_FIRST = {**_SHARED, "num_experts": 6, "num_experts_per_tok": 2, "tie_word_embeddings": True}
_SECOND = {
    **_SHARED,
    "model_type": "git",
    "num_local_experts": 5,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 36,
    "residual_moe": True,
    "attn_logit_softcapping": 4.0,
    "router_logit_softcapping": 3.0,
    "final_logit_softcapping": 5.0,
    "rope_theta": 50000.0,
    "rope_type": "original",
    "head_dim": 24,
}


def _row(name: str, architecture: str, config: dict[str, object], save: object, **further: object) -> TinyFamily:
    return TinyFamily(name, architecture, config, _grok.Grok, save, **further)


ROWS = [
    _row("grok1", "Grok1ModelForCausalLM", _FIRST, _grok.first),
    _row("grok2", "Grok1ForCausalLM", _SECOND, _grok.second),
    _row(
        "grok2_bare",
        "Grok1ForCausalLM",
        {**_SECOND, "residual_moe": False, "num_experts_per_tok": 1, "moe_intermediate_size": None},
        _grok.second,
    ),
]
