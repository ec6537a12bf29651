"""What configurations of PLaMo 2 say."""

from __future__ import annotations

import pytest
from core_plugin_plamo.plamo2 import read

SMALL = {
    "architectures": ["Plamo2ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size_per_head": 16,
    "attention_window_size": 128,
    "mamba_num_heads": 8,
}


def attending(**changes):
    layers = read({**SMALL, **changes}).layers
    return [index for index, layer in enumerate(layers) if not layer.recurrences]


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({}, [1, 3, 5]),
        ({"mamba_step": 4}, [2]),
        ({"mamba_step": 3}, [1, 4]),
        ({"mamba_step": 12}, [5]),
        ({"mamba_step": 20}, [5]),
        ({"mamba_enabled": False}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_layers_that_attend(changes, layers):
    assert attending(**changes) == layers


def test_a_token_sees_itself_beside_its_window():
    layers = read({**SMALL, "full_attention_idx": [3]}).layers
    assert [layers[index].attention.window for index in (1, 3, 5)] == [129, None, 129]


def test_without_a_length_the_context_is_that_of_the_published_code():
    assert read(SMALL).max_positions == 10 * 2**20
