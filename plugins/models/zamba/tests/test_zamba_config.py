"""What configurations of Zamba2 say."""

from __future__ import annotations

import pytest
from core_plugin_zamba.family import read, shape

SMALL = {
    "architectures": ["Zamba2ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "num_hidden_layers": 54,
    "num_attention_heads": 4,
    "n_mamba_heads": 8,
    "num_mem_blocks": 2,
}
HYBRID = (6, 12, 18, 24, 30, 36, 42, 47, 51)


def skipped(config, name):
    """Return the layers whose tensor of this name is left out."""
    return [layer for layer in HYBRID if f"*layers.{layer}.shared_transformer.{name}" in read(config).skips]


def test_without_a_list_layers_are_those_of_the_first_checkpoint():
    layers = read(SMALL).layers
    hybrid = [i for i, layer in enumerate(layers) if layer.before_attention.name.startswith("mamba_decoder.")]
    assert tuple(hybrid) == HYBRID


def test_blocks_are_used_by_turns_and_stored_once():
    assert skipped(SMALL, "*") == list(HYBRID[2:])


def test_embeddings_that_are_not_tied_leave_each_layer_a_block_of_its_own():
    untied = {**SMALL, "tie_word_embeddings": False}
    assert skipped(untied, "*") == []
    assert skipped(untied, "*_adapter_list.0.*") == list(HYBRID[1:])


@pytest.mark.parametrize(("changes", "ropes"), [({}, 0), ({"use_mem_rope": True}, 1)])
def test_the_shape_is_that_of_the_blocks(changes, ropes):
    found = shape({**SMALL, **changes})
    assert (found.num_heads, found.num_kv_heads, found.head_dim, len(found.ropes)) == (4, 4, 32, ropes)
    sizes = {weight.name: dict(weight.dims) for weight in found.weights}
    block = [name for name in sizes if "shared_transformer" in name and name.endswith("o_proj.weight")]
    assert block == [f"layers.{layer}.shared_transformer.self_attn.o_proj.weight" for layer in (6, 12)]
    assert found.recurrent


def test_a_long_context_is_said_by_a_flag():
    assert [read({**SMALL, "use_long_context": long}).max_positions for long in (False, True)] == [4096, 16384]
