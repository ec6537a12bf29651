"""Configurations of IQuest LoopCoder."""

from __future__ import annotations

import pytest
from core_plugin_iquest.family import read, shape

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}


def test_later_passes_have_a_window():
    decoder = read(SMALL)
    assert (decoder.passes, decoder.layers[0].attention.mix.window, decoder.layers[0].attention.window) == (2, 64, None)
    assert "sliding_window" in shape(dict(SMALL)).features
    once = {**SMALL, "loop_num": 1}
    assert "sliding_window" not in shape(once).features and read(once).skips == ("*gate_projections.*",)


@pytest.mark.parametrize(
    "changes", [{"loop_num": 0}, {"loop_window_size": -1}, {"mlp_bias": True}, {"sliding_window": 8}]
)
def test_what_is_not_carried_out_is_refused(changes):
    with pytest.raises(CheckpointError, match=next(iter(changes))) as refused:
        read({**SMALL, **changes})
    assert refused.value.code == "CORE-M126"
