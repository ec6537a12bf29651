"""Configurations of Ouro."""

from __future__ import annotations

import pytest
from core_plugin_ouro.family import read, shape

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}


def test_passes_follow_from_the_configuration():
    assert (read(SMALL).passes, read({**SMALL, "total_ut_steps": 3}).passes) == (4, 3)
    assert read({**SMALL, "total_ut_steps": 3, "early_exit_step": 0}).passes == 1
    assert read({**SMALL, "early_exit_step": 3, "early_exit_threshold": 1.0}).passes == 4
    assert shape(dict(SMALL)).num_layers == 4  # those of the files, each of which keeps keys and values four times


def test_windows_begin_behind_a_layer():
    given = {**SMALL, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3}
    assert [layer.attention.window for layer in read(given).layers] == [None, None, None, 16]
    assert [layer.attention.window for layer in read({**given, "use_sliding_window": False}).layers] == [None] * 4


@pytest.mark.parametrize(
    "changes",
    [{"early_exit_threshold": 0.9}, {"early_exit_step": 4}, {"total_ut_steps": 0}, {"attention_bias": True}],
)
def test_what_is_not_carried_out_is_refused(changes):
    with pytest.raises(CheckpointError, match=next(iter(changes))) as refused:
        read({**SMALL, **changes})
    assert refused.value.code == "CORE-M126"
