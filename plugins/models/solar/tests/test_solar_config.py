"""What configurations of Solar Pro can ask for."""

from __future__ import annotations

import pytest
from core_plugin_solar.family import read

from core.api import CheckpointError

SMALL = {
    "architectures": ["SolarForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 64,
    "num_attention_heads": 4,
}


def test_without_skips_of_their_own_they_have_those_of_the_published_model():
    layers = read(SMALL).layers
    assert [index for index, layer in enumerate(layers) if 0 in layer.keeps] == [12, 20, 32, 44]
    assert [(index, layer.blends) for index, layer in enumerate(layers) if layer.blends][:2] == [
        (16, ((0, 0.8),)),
        (24, ((0, 0.8),)),
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"bskcn_1": [64]}, "'bskcn_1' is .* some of 64 layers"),
        ({"bskcn_3": "all"}, "'bskcn_3' is 'all'"),
        ({"bskcn_tv": [0.9]}, "'bskcn_tv' is .* two numbers"),
        ({"bskcn_2": [30]}, "'bskcn_4' names layer 28, before any of 'bskcn_2'"),
    ],
)
def test_skips_that_cannot_be_are_refused(changes, text):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{text}"):
        read({**SMALL, **changes})
