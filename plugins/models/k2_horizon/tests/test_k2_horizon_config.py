"""Configurations of K2 Horizon."""

from __future__ import annotations

import pytest
import torch
from core_plugin_k2_horizon.family import read

from core.api import CheckpointError
from core.ops.rotary import inverse_frequencies

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "rope_theta": 1e7,
}

YARN = {
    "rope_type": "yarn",
    "factor": 16.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 128.0,
    "beta_slow": 4.0,
}


def test_a_part_of_a_head_rotates_with_frequencies_of_its_own():
    rope = read({**SMALL, "rope_head_dim": 12}).layers[0].attention.rope
    frequencies, factor = inverse_frequencies(rope)
    due = torch.cat((1e7 ** (-torch.arange(0, 12, 2) / 12), torch.zeros(2)))
    torch.testing.assert_close(frequencies, due)
    assert factor == 1.0
    assert read({**SMALL, "rope_head_dim": 16}).layers[0].attention.rope.rule == "default"


def test_scaled_rotation_of_a_whole_head_is_read():
    given = {key: value for key, value in SMALL.items() if key != "rope_theta"}
    rope = (
        read({**given, "rope_parameters": {**YARN, "rope_theta": 1e6, "attention_factor": 1.25}})
        .layers[0]
        .attention.rope
    )
    assert (rope.rule, rope.context, rope.theta) == ("yarn", 2048, 1e6)


def test_layers_that_are_named_as_dense_have_no_experts():
    assert len(read({**SMALL, "num_experts": 8, "mlp_only_layers": [0, 1, 2, 3]}).layers) == 4
    assert len(read({**SMALL, "num_experts": 8, "decoder_sparse_step": 5}).layers) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"num_experts": 8},
        {"num_experts": 8, "mlp_only_layers": [0, 1, 2]},
        {"layernorm_num_groups": 3},
        {"attention_gate_func": "relu"},
        {"rope_head_dim": 11},
        {"rope_head_dim": 20},
        {"rope_head_dim": 12, "rope_scaling": YARN},
        {"rope_theta": None},
    ],
)
def test_what_is_not_carried_out_is_refused(changes):
    named = "rope_parameters" if "rope_theta" in changes else next(iter(changes))
    with pytest.raises(CheckpointError, match=named) as refused:
        read({**SMALL, **changes})
    assert refused.value.code == "CORE-M126"
