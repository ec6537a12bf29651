"""Configurations of Gemma 3n."""

from __future__ import annotations

import pytest
from core_plugin_gemma.gemma3n import read

from core.api import CheckpointError


def test_what_is_missing_has_transformers_defaults():
    layers = read({}).layers
    assert len(layers) == 35 and [layer.attention.window for layer in layers[:5]] == [512] * 4 + [None]
    assert [layer.attention.shares for layer in layers[19:22]] == [None, 18, 18] and layers[24].attention.shares == 19
    assert [layer.mlp.divided for layer in layers] == [False] * 10 + [True] * 25
    assert (layers[0].attention.rope.theta, layers[4].attention.rope.theta) == (1e4, 1e6)
    assert read({"num_hidden_layers": 10, "num_kv_shared_layers": 0}).layers[0].mlp.divided


def test_older_configurations_have_their_bases_beside_each_other():
    scaled = {"rope_type": "linear", "factor": 2.0}
    layers = read({"rope_theta": 5e5, "rope_local_base_freq": 2e4, "rope_scaling": scaled}).layers
    assert (layers[0].attention.rope.theta, layers[0].attention.rope.rule) == (2e4, "default")
    assert (layers[4].attention.rope.theta, layers[4].attention.rope.rule) == (5e5, "linear")


@pytest.mark.parametrize(
    "changes",
    [
        {"activation_sparsity_pattern": [0.5]},
        {"activation_sparsity_pattern": [1.0] * 35},
        {"intermediate_size": [64, 64]},
        {"num_kv_shared_layers": 35},
        {"num_kv_shared_layers": 34},
        {"use_bidirectional_attention": True},
        {"is_causal": False},
    ],
)
def test_what_is_not_carried_out_is_refused(changes):
    with pytest.raises(CheckpointError, match=next(iter(changes))) as refused:
        read(changes)
    assert refused.value.code == "CORE-M126"
