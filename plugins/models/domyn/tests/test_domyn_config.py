"""What configurations of Domyn Edge can ask for."""

from __future__ import annotations

import pytest
from core_plugin_domyn.family import read, shape

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 36,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_layers_without_lists_are_those_of_the_published_model():
    attentions = [layer.attention for layer in read(SMALL).layers]
    assert [attention.head_dim for attention in attentions[:8]] == [256, 256, 64, 64, 64, 256, 64, 64]
    assert [attention.window for attention in attentions[-6:]] == [1025, 1025, 1025, None, None, None]
    assert all((attention.rope is None) == (attention.window is None) for attention in attentions)
    assert shape(dict(SMALL)).head_dims == {64, 256}


def test_single_layers_have_heads_of_their_own():
    given = {**SMALL, "head_dim": 32, "per_layer_config": {"1": {"head_dim": 48}, 35: {"head_dim": 16}}}
    sizes = [layer.attention.head_dim for layer in read(given).layers]
    assert (sizes[0], sizes[1], sizes[34], sizes[35]) == (32, 48, 32, 16)


def test_heads_may_be_said_twice_or_once_for_all():
    alike = {**SMALL, "head_sizes": [64] * 36, "head_dim": 128, "per_layer_config": {"0": {"head_dim": 64}}}
    assert shape(alike).head_dims == {64}
    assert shape({**SMALL, "head_dim": 128}).head_dims == {128}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_hidden_layers": 4}, "'position_layers' is .* for each of 4 layers"),
        ({"position_layers": ["alibi"] * 36}, "'position_layers' is .*'rope' or 'nope'"),
        ({"window_sizes": [[8, 8]] * 36}, "'window_sizes' is "),
        ({"window_sizes": [[0, 0]] * 36}, "'window_sizes' is "),
        ({"window_sizes": [8] * 36}, "'window_sizes' is "),
        ({"head_sizes": [64]}, "'head_sizes' is "),
        ({"head_sizes": [0] * 36}, "'head_dim'"),
        ({"head_sizes": [64] * 36, "per_layer_config": {"1": {"head_dim": 32}}}, "'head_sizes' has 64 for layer 1"),
        ({"per_layer_config": {"0": {"head_dim": 32}}}, "'head_dim'"),
        ({"per_layer_config": {"36": {"head_dim": 32}}}, "'per_layer_config' has '36'"),
        ({"head_dim": 32, "per_layer_config": {"0": {"num_key_value_heads": 1}}}, "'per_layer_config' has '0'"),
        ({"attention_bias": True}, "'attention_bias' is True"),
    ],
)
def test_what_is_not_carried_out_is_refused(changes, text):
    with pytest.raises(CheckpointError, match=f"CORE-M126 .*{text}"):
        read({**SMALL, **changes})
