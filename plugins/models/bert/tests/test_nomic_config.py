"""Nomic BERT's configurations, with the keys of its makers and those of transformers."""

from __future__ import annotations

import pytest
from core_plugin_bert.nomic_config import NomicConfig, shape

from core.api import CheckpointError

MAKERS = {
    "architectures": ["NomicBertModel"],
    "vocab_size": 30528,
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 8192,
    "layer_norm_epsilon": 1e-12,
    "activation_function": "swiglu",
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "prenorm": False,
    "type_vocab_size": 2,
}
OTHERS = {
    "architectures": ["NomicBertModel"],
    "vocab_size": 30528,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-12,
    "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    "type_vocab_size": 2,
}


def test_both_forms_say_the_same():
    one, other = shape(dict(MAKERS)), shape(dict(OTHERS))
    assert one == other
    assert (one.max_positions, one.head_dim, one.num_layers, one.features) == (8192, 64, 12, {"bidirectional"})
    assert NomicConfig.read(MAKERS).rope.theta == NomicConfig.read(OTHERS).rope.theta == 1000.0


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_function": "gelu"},
        {"prenorm": True},
        {"qkv_proj_bias": True},
        {"moe_every_n_layers": 2},
        {"rotary_scaling_factor": 2.0},
        {"rotary_emb_fraction": 0.5},
        {"n_embd": 0},
    ],
)
def test_what_is_not_carried_out_is_refused(changes):
    with pytest.raises(CheckpointError) as refused:
        shape({**MAKERS, **changes})
    assert refused.value.code == "CORE-M126"
