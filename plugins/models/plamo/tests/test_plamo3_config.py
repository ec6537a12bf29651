"""What configurations of PLaMo 3 say."""

from __future__ import annotations

import pytest
from core_plugin_plamo.plamo3 import read

from core.api import CheckpointError

SMALL = {
    "architectures": ["Plamo3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "window_size": 128,
    "rope_theta": 150000,
}


def test_one_layer_in_eight_sees_the_whole_context():
    layers = read(SMALL).layers
    assert [layer.attention.window for layer in layers] == [128] * 7 + [None]
    assert [layer.attention.rope.theta for layer in layers[-2:]] == [10000.0, 150000.0]


def test_older_keys():
    old = {
        **SMALL,
        "window_size": None,
        "rope_theta": None,
        "rope_global_theta": 1000000,
        "sliding_window": [64] * 7 + [None],
    }
    layers = read(old).layers
    assert (layers[0].attention.window, layers[-1].attention.rope.theta) == (64, 1e6)


def test_a_longer_context_is_one_of_the_layers_that_see_it():
    decoder = read({**SMALL, "rope_scaling_factor": 8.0, "initial_context_length": 4096})
    sliding, full = decoder.layers[0].attention.rope, decoder.layers[-1].attention.rope
    assert (sliding.rule, full.rule, decoder.max_positions) == ("default", "yarn", 32768)
    assert not full.scaling["truncate"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"scale_embedding": True}, "'scale_embedding' is True"),
        ({"linear_type": "fp8"}, "'linear_type' is 'fp8'"),
        ({"sliding_window": [64, 32]}, "'sliding_window' has several windows"),
        ({"tie_word_embeddings": False}, "'vocab_size' is 100: .* a multiple of 16"),
        ({"rope_theta": None}, "'rope_global_theta'"),
    ],
)
def test_what_nobody_computes_is_refused(changes, text):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{text}"):
        read({**SMALL, **changes})
