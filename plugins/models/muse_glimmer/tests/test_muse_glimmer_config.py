"""Configurations of Muse Glimmer."""

from __future__ import annotations

import pytest
from core_plugin_muse_glimmer.family import read, shape

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "head_dim": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0},
}


def test_every_fourth_layer_from_the_last_sees_all_and_rotates_nothing():
    attentions = [layer.attention for layer in read(SMALL).layers]
    assert [one.window for one in attentions] == [None, 2048, 2048, 2048, None]
    assert [one.rope is None for one in attentions] == [True, False, False, False, True]


def test_the_text_decoder_may_be_a_part_of_the_configuration():
    whole = {"architectures": ["MuseGlimmerForCausalLM"], "text_config": SMALL, "vision_config": {"hidden_size": 8}}
    assert shape(whole) == shape({**SMALL, "architectures": ["MuseGlimmerForCausalLM"]})


@pytest.mark.parametrize(
    "changes",
    [
        {"qk_scale_factor": 43.78},
        {"layer_rope_theta": [0, 1, 1, 1, 0]},
        {"layer_rope_theta": [0]},
        {"use_qk_norm": False},
        {"no_rope_layers": [0, 1, 1, 1, 0]},
        {"output_soft_cap_temp": 20.0},
        {"attn_logit_softcapping": 3.0},
        {"rope_parameters": None},
    ],
)
def test_what_is_not_carried_out_is_refused(changes):
    with pytest.raises(CheckpointError, match=next(iter(changes))) as refused:
        read({**SMALL, **changes})
    assert refused.value.code == "CORE-M126"
