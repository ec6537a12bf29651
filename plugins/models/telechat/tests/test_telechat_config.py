"""What configurations of TeleChat and Tele-FLM say."""

from __future__ import annotations

import math

import pytest
from core_plugin_telechat.telechat import read
from core_plugin_telechat.telechat3 import read as read_third

from core.api import CheckpointError

SMALL = {
    "architectures": ["TeleChatForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 256,
    "ffn_hidden_size": 96,
    "n_layer": 2,
    "n_head": 2,
    "layer_norm_epsilon": 1e-5,
}
THIRD = {
    "architectures": ["TeleChat3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32768,
}


@pytest.mark.parametrize(("base", "growth"), [(8192, 1), (4096, 3), (2048, 7), (5000, 3)])
def test_the_base_grows_with_the_length_of_training(base, growth):
    decoder = read({**SMALL, "training_seqlen": 8192, "base_seqlen": base})
    rope = decoder.layers[0].attention.rope
    assert decoder.max_positions == 8192
    assert rope.theta == pytest.approx(10000 * growth ** (128 / 126))


def test_norms_whose_result_is_the_residual_are_refused():
    with pytest.raises(CheckpointError, match=r"CORE-M126 .*'apply_residual_connection_post_layernorm'"):
        read({**SMALL, "apply_residual_connection_post_layernorm": True})


def test_the_third_generation_stretches_less():
    scaling = {"type": "telechat3-yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    rope = read_third({**THIRD, "rope_scaling": scaling}).layers[0].attention.rope
    assert (rope.rule, rope.context) == ("yarn", 32768)
    assert rope.scaling["attention_factor"] == pytest.approx(1 + 0.07 * math.log(4))
    both = {**scaling, "mscale": 1.0, "mscale_all_dim": 1.0}
    assert read_third({**THIRD, "rope_scaling": both}).layers[0].attention.rope.scaling["attention_factor"] == 1.0
    plain = {**scaling, "type": "yarn"}
    assert "attention_factor" not in read_third({**THIRD, "rope_scaling": plain}).layers[0].attention.rope.scaling
