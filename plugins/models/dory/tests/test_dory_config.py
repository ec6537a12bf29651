"""What configurations of Dory can ask for."""

from __future__ import annotations

import pytest
from core_plugin_dory.family import Loops, loops_of, read, scales_of, shape

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_layers_are_attention_or_an_mlp():
    layers = read(SMALL).layers
    assert [layer.mlp is not None for layer in layers] == [False, True] * 8
    assert [layer.attention.window for layer in layers[::2]] == [1024, 1024, 1024, None] * 2
    assert shape(dict(SMALL)).num_layers == 16  # those of the files, of which some keep keys and values several times


def test_layers_in_the_middle_run_several_times():
    assert loops_of(SMALL) == Loops(0, 16, 1)
    assert loops_of({**SMALL, "n_input_layers": 4, "n_output_layers": 2, "n_recurrent_loops": 9}) == Loops(4, 14, 9)
    assert loops_of({**SMALL, "n_input_layers": 12, "n_recurrent_layers": 0, "n_output_layers": 4}) == Loops(12, 12, 1)


def test_the_context_is_that_of_layers_that_see_everything():
    kinds = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_type": "linear", "factor": 4.0}}
    given = {**SMALL, "max_position_embeddings": 512, "rope_parameters": kinds}
    assert shape(dict(given)).max_positions == 2048
    assert shape({**given, "layer_types": ["sliding_attention", "mlp"] * 8}).max_positions == 512


def test_factors_follow_from_the_deviation_of_training():
    assert scales_of({**SMALL, "initializer_range": 0.5, "ngpt_alpha_init": 0.25}) == (2.0, 0.5, 32.0)
    assert scales_of({**SMALL, "initializer_range": 0.5, "attention_output_gate_logit_scale_init": 3.0}).gate == 12.0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recurrent_kv_cache_mode": "last_loop"}, "'recurrent_kv_cache_mode' is 'last_loop'"),
        ({"layer_types": ["mlp"] * 16}, "'layer_types' names no layer with attention"),
        ({"layer_types": ["chunked_attention"] * 16}, "'layer_types' must name 16 layers"),
        ({"n_recurrent_layers": 4}, "'n_recurrent_layers' .* are 0, 4 and 0"),
        ({"n_input_layers": 9, "n_output_layers": 9}, "'n_recurrent_layers'"),
        ({"n_recurrent_loops": 0}, "'n_recurrent_loops'"),
        ({"initializer_range": 0}, "'initializer_range'"),
        ({"sliding_window": 0}, "'sliding_window'"),
        ({"sliding_window": None}, "'sliding_window'"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu'"),
        ({"tie_word_embeddings": True}, "'tie_word_embeddings' is True"),
        ({"mlp_bias": True}, "'mlp_bias' is True"),
        ({"dory_format_version": 1}, "'dory_format_version' is 1"),
    ],
)
def test_what_is_not_carried_out_is_refused(changes, text):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{text}"):
        shape({**SMALL, **changes})
