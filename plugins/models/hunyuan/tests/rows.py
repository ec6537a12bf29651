"""Tiny checkpoints of this family."""

from __future__ import annotations

from core.testing.families import TinyFamily

_HUNYUAN = {"model_type": "hunyuan_v1_dense", "head_dim": 24}
_ALPHA = {"type": "dynamic", "alpha": 50.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0}

ROWS = [
    TinyFamily(
        "hunyuan",
        "HunYuanDenseV1ForCausalLM",
        _HUNYUAN | {"rope_scaling": _ALPHA, "use_qk_norm": True, "tie_word_embeddings": True},
    ),
    TinyFamily(
        "hunyuan_plain",
        "HunYuanDenseV1ForCausalLM",
        _HUNYUAN | {"attention_bias": True, "rope_theta": 500.0, "head_dim": 20},
    ),
]

POOLED = [
    TinyFamily("hunyuan_scores", "HunYuanDenseV1ForSequenceClassification", _HUNYUAN | {"num_labels": 3}),
    TinyFamily("hunyuan_states", "HunYuanDenseV1Model", _HUNYUAN),
]
