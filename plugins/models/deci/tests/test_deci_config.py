"""What configurations of Nemotron-NAS can ask for."""

from __future__ import annotations

import pytest
from core_plugin_deci.family import read

from core.api import CheckpointError

USUAL = {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 2.625}}
SMALL = {
    "architectures": ["DeciLMForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "block_configs": [USUAL, USUAL],
}


def changed(**parts):
    return {**SMALL, "block_configs": [USUAL, {**USUAL, **parts}]}


def test_sizes_of_mlps_are_multiples():
    assert read(SMALL).layers[0].mlp.size == 1024


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (changed(attention={"n_heads_in_group": 2, "window_length": 8192}), "'window_length' is 8192"),
        (changed(attention={"n_heads_in_group": 2, "num_sink_tokens": 4}), "'num_sink_tokens' is 4"),
        (changed(attention={"is_mamba": True}), "'is_mamba' is True"),
        (changed(attention={"n_heads_in_group": 3}), "'num_attention_heads' is 4"),
        (changed(ffn={"ffn_mult": 1.0, "sparsify": ["all"]}), "'sparsify' is"),
        (changed(ffn={"ffn_mult": 1.0, "gated": False}), "'gated' is False"),
        ({**SMALL, "block_configs": [USUAL]}, "'block_configs' must describe 2 layers"),
        (
            {**SMALL, "block_configs": [{"attention": {"no_op": True}, "ffn": USUAL["ffn"]}] * 2},
            "no layer with attention",
        ),
        ({**SMALL, "position_embedding_type": "rope_llama4"}, "'position_embedding_type' is 'rope_llama4'"),
    ],
)
def test_what_nobody_computes_is_refused(config, text):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{text}"):
        read(config)
