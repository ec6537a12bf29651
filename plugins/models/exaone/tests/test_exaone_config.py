"""How EXAONE 4 says which layers have a window."""

from __future__ import annotations

import pytest
from core_plugin_exaone.exaone4 import read

from core.api import CheckpointError

SMALL = {
    "architectures": ["Exaone4ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 16,
}


def windows(**changes):
    return [layer.attention.window for layer in read({**SMALL, **changes}).layers]


def test_patterns_in_letters_and_in_numbers():
    assert windows(sliding_window_pattern="LLG") == windows(sliding_window_pattern=3) == [16, 16, None] * 2
    assert windows() == [16, 16, 16, None, 16, 16]
    assert windows(sliding_window=None) == [None] * 6


def test_layers_without_a_window_rotate_only_where_no_layer_has_one():
    assert [layer.attention.rope is None for layer in read(SMALL).layers] == [False] * 3 + [True] + [False] * 2
    assert all(layer.attention.rope for layer in read({**SMALL, "sliding_window": None}).layers)


@pytest.mark.parametrize("pattern", ["LXG", ""])
def test_other_letters_are_refused(pattern):
    with pytest.raises(CheckpointError, match="CORE-M126 'sliding_window_pattern'"):
        windows(sliding_window_pattern=pattern)
