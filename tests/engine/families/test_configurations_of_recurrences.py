"""Configurations of decoders with state-space layers: the forms that makers gave them, and what is refused by name."""

from __future__ import annotations

from importlib import import_module

import pytest
from core_plugin_decoder import step_limits

from core.api.errors import CheckpointError

MODULES = {
    "mamba": "core_plugin_mamba.family",
    "mamba2": "core_plugin_mamba.second",
    "falcon_h1": "core_plugin_falcon_h1.family",
    "bamba": "core_plugin_bamba.family",
    "granite_hybrid": "core_plugin_granite.hybrid",
    "nemotron_h": "core_plugin_nemotron.hybrid",
    "jamba": "core_plugin_jamba.family",
    "zamba2": "core_plugin_zamba.family",
    "plamo2": "core_plugin_plamo.plamo2",
    "minimax_text01": "core_plugin_minimax.text",
}

REFUSED = [
    ("mamba", {"hidden_act": "gelu"}, "hidden_act"),
    ("mamba2", {"num_heads": 10}, "num_heads"),
    ("mamba2", {"n_groups": 3}, "3 groups"),
    ("mamba2", {"time_step_limit": [1.0, 0.5]}, "time_step_limit"),
    ("falcon_h1", {"attention_bias": True}, "attention_bias"),
    ("falcon_h1", {"mlp_bias": True}, "mlp_bias"),
    ("falcon_h1", {"ssm_multipliers": [1.0]}, "ssm_multipliers"),
    ("falcon_h1", {"mamba_n_heads": 7}, "mamba_n_heads"),
    ("bamba", {"attn_layer_indices": [3]}, "attn_layer_indices"),
    ("bamba", {"mamba_n_heads": 7}, "mamba_n_heads"),
    ("granite_hybrid", {"layer_types": ["conv"] * 4}, "layer_types"),
    ("granite_hybrid", {"mamba_n_heads": 7}, "mamba_n_heads"),
    ("nemotron_h", {"sliding_window": 8}, "sliding_window"),
    ("nemotron_h", {"layers_block_type": ["conv"]}, "layers_block_type"),
    ("jamba", {"attn_layer_offset": 2}, "attn_layer_offset"),
    ("zamba2", {"layers_block_type": ["mamba", "attention", "hybrid", "hybrid", "hybrid"]}, "layers_block_type"),
    ("zamba2", {"layers_block_type": None}, "layers_block_type"),
    ("zamba2", {"n_mamba_heads": 7}, "n_mamba_heads"),
    ("zamba2", {"num_attention_heads": 7, "num_key_value_heads": 7}, "num_attention_heads"),
    ("zamba2", {"num_key_value_heads": 2}, "num_key_value_heads"),
    ("minimax_text01", {"attn_type_list": None}, "attn_type_list"),
    ("minimax_text01", {"attn_type_list": [0, 1, 2, 0]}, "attn_type_list"),
    ("minimax_text01", {"postnorm": None}, "postnorm"),
    ("minimax_text01", {"shared_intermediate_size": [0, 0, 8, 0]}, "shared_intermediate_size"),
    ("minimax_text01", {"rotary_dim": 26}, "rotary_dim"),
    ("plamo2", {"linear_type": "fp8"}, "linear_type"),
    ("plamo2", {"image_token_id": 7}, "image_token_id"),
    ("plamo2", {"mamba_step": 1}, "mamba_step"),
    ("plamo2", {"vocab_size": 367, "tie_word_embeddings": False}, "vocab_size"),
]

SAME = [
    (
        "granite_hybrid",
        {"layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"]},
        {"layer_types": ["mamba", "attention", "mamba", "attention"]},
    ),
    (
        "nemotron_h",
        {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]},
        {"layers_block_type": None, "hybrid_override_pattern": "ME*-", "num_hidden_layers": 4},
    ),
    ("nemotron_h", {"n_groups": 2, "conv_kernel": 3}, {"n_groups": None, "mamba_n_groups": 2, "mamba_d_conv": 3}),
    ("jamba", {"num_experts": 5}, {"num_experts": None, "num_local_experts": 5}),
    (
        "zamba2",
        {"layers_block_type": ["linear_attention", "linear_attention", "hybrid", "hybrid", "linear_attention"]},
        {"layers_block_type": ["mamba", "mamba", "hybrid", "hybrid", "mamba"]},
    ),
    ("mamba", {"intermediate_size": 160}, {"intermediate_size": None, "expand": 2}),
]
"""Row, what a configuration says in transformers' words, and in its makers'."""


def given(families, name, values):
    return import_module(MODULES[name]), families[name].values(**values)


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize(("name", "values", "key"), REFUSED, ids=[f"{name}-{key}" for name, _, key in REFUSED])
def test_what_is_not_supported_is_named(name, values, key, families):
    module, config = given(families, name, values)
    with pytest.raises(CheckpointError, match=key) as caught:
        module.read(config)
    assert caught.value.code == "CORE-M126"


@pytest.mark.covers("MODEL-01", "MODEL-06")
@pytest.mark.parametrize(("name", "usual", "makers"), SAME)
def test_makers_configurations_describe_the_same_weights(name, usual, makers, families):
    shapes = [module.shape(config) for module, config in (given(families, name, one) for one in (usual, makers))]
    assert shapes[0] == shapes[1] and shapes[0].recurrent


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize(
    ("written", "limits"),
    [
        (None, (0.0, float("inf"))),
        ([0.0, float("inf")], (0.0, float("inf"))),
        ([0.001, {"__float__": "Infinity"}], (0.001, float("inf"))),
        ((0, 1), (0.0, 1.0)),
    ],
)
def test_limits_of_steps(written, limits):
    assert step_limits({"time_step_limit": written}) == limits


@pytest.mark.covers("MODEL-01")
@pytest.mark.parametrize("written", [[1.0], ["0", "1"], [-1.0, 1.0], [0.0, float("nan")], 0.5])
def test_limits_that_are_none(written):
    with pytest.raises(CheckpointError, match="time_step_limit"):
        step_limits({"time_step_limit": written})
