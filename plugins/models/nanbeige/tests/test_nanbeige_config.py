"""What configurations of Nanbeige can ask for."""

from __future__ import annotations

import pytest
from core_plugin_nanbeige.family import read

from core.api import CheckpointError

SMALL = {
    "architectures": ["NanbeigeForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@pytest.mark.parametrize(
    ("changes", "passes"), [({}, 1), ({"num_loops": 2}, 2), ({"num_loops": 2, "loop_loss_weights": [0.1, 0.1]}, 3)]
)
def test_how_often_the_layers_run(changes, passes):
    assert read({**SMALL, **changes}).passes == passes


@pytest.mark.parametrize(
    "key",
    ["enable_hyper_connection", "enable_depth_attention", "enable_double_loop_split", "loop_share_kv", "qk_layernorm"],
)
def test_what_nobody_computes_is_refused(key):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*'{key}' is True"):
        read({**SMALL, key: True})


def test_n_grams_are_refused():
    with pytest.raises(CheckpointError, match=r"CORE-M126 .*'emb_neighbor_num' is 3"):
        read({**SMALL, "emb_neighbor_num": 3})
