"""Tiny checkpoints of this family."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from core_testing.families import TinyFamily


def _beside(name):
    spec = spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_plamo2, _plamo3 = _beside("reference_plamo2"), _beside("reference_plamo3")

_HYBRID = {
    "model_type": "plamo2",
    "hidden_size_per_head": 24,
    "num_hidden_layers": 4,
    "attention_window_size": 6,
    "mamba_num_heads": 6,
    "mamba_d_state": 12,
    "mamba_d_conv": 4,
    "mamba_step": 2,
    "rms_norm_eps": 1e-6,
}

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
        "plamo2",
        "Plamo2ForCausalLM",
        {**_HYBRID, "linear_type": "normal"},
        _plamo2.Plamo2,
        native={"hidden_size_per_head": 32},
    ),
    TinyFamily(
        "plamo2_untied",
        "Plamo2ForCausalLM",
        {
            **_HYBRID,
            "vocab_size": 368,
            "tie_word_embeddings": False,
            "mamba_step": 3,
            "mamba_d_conv": 3,
            "num_key_value_heads": 1,
            "full_attention_idx": [1],
        },
        _plamo2.Plamo2,
        native={"hidden_size_per_head": 32},
    ),
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
