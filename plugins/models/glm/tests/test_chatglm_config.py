"""What configurations of ChatGLM ask for and nobody computes."""

from __future__ import annotations

import pytest
from core_plugin_glm.chatglm import read

from core.api import CheckpointError

SMALL = {
    "architectures": ["ChatGLMModel"],
    "padded_vocab_size": 100,
    "hidden_size": 64,
    "ffn_hidden_size": 96,
    "num_layers": 2,
    "num_attention_heads": 4,
    "kv_channels": 16,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
}


@pytest.mark.parametrize("key", ["position_encoding_2d", "apply_residual_connection_post_layernorm"])
def test_older_forms_are_refused(key):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*'{key}' is True"):
        read({**SMALL, key: True})


def test_a_greater_base_for_longer_contexts():
    rope = read({**SMALL, "rope_ratio": 500, "seq_length": 131072}).layers[0].attention.rope
    assert (rope.theta, rope.rotary_dim, rope.context, rope.interleaved) == (5e6, 8, 131072, True)
