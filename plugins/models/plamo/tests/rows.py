"""Tiny checkpoints of this family."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core.testing.families import TinyFamily

_spec = spec_from_file_location("reference_plamo3", Path(__file__).with_name("reference_plamo3.py"))
_plamo3 = module_from_spec(_spec)
_spec.loader.exec_module(_plamo3)

_USUAL = {
    "model_type": "plamo3",
    "head_dim": 24,
    "num_hidden_layers": 4,
    "window_size": 6,
    "sliding_window_pattern": 2,
    "rope_theta": 20000,
    "rope_local_theta": 100,
    "rms_norm_eps": 1e-6,
}

ROWS = [
    TinyFamily(
        "plamo3",
        "Plamo3ForCausalLM",
        {**_USUAL, "vocab_size": 368, "tie_word_embeddings": False, "linear_type": "normal"},
        _plamo3.Plamo3,
    ),
    TinyFamily(
        "plamo3_tied",
        "Plamo3ForCausalLM",
        {**_USUAL, "sliding_window": [6, 6, None, 6], "sliding_window_pattern": 3, "num_key_value_heads": 1},
        _plamo3.Plamo3,
        spread=0.2,
    ),
]
