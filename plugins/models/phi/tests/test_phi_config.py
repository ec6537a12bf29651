"""Configurations of Phi-3 in other forms."""

from __future__ import annotations

import json

import pytest
from core_plugin_phi.phi3 import read

from core_testing.families import TinyFamily


@pytest.mark.parametrize("name", ["su", "yarn", "longrope"])
def test_older_names_of_longrope(name, tmp_path):
    factors = {"short_factor": [1.0] * 10, "long_factor": [2.0] * 10}
    config = TinyFamily("phi3", "Phi3ForCausalLM", {"rope_scaling": {"type": name, **factors}}).values(
        max_position_embeddings=8192
    )
    rope = read(json.loads(json.dumps(config))).layers[0].attention.rope
    assert (rope.rule, rope.original_positions, rope.context) == ("longrope", 4096, 8192)


def test_a_window_as_long_as_the_context_is_none():
    config = TinyFamily("phi3", "Phi3ForCausalLM", {"sliding_window": 256}).values()
    assert read(config).layers[0].attention.window is None
