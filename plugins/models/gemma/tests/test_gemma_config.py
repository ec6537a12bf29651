"""Configurations of the family, in the forms of transformers 4 and 5 and of GGUF files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from core_plugin_gemma.family import read as describe
from core_plugin_gemma.family import shape

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
SLIDING, FULL = "sliding_attention", "full_attention"
LINEAR = {"rope_type": "linear", "factor": 8.0}


def config(version: int = 3, **changes):
    return {**SMALL, "architectures": [f"Gemma{version}ForCausalLM"], **changes}


def read(version: int = 3, **changes):
    return describe(config(version, **changes))


def windows(found):
    return tuple(layer.attention.window for layer in found.layers)


@pytest.mark.parametrize(
    ("version", "model_type", "scores", "logits", "qk_norm", "context"),
    [(2, "gemma2", 50.0, 30.0, False, 8192), (3, "gemma3_text", None, None, True, 131_072)],
)
def test_what_is_missing_has_transformers_defaults(version, model_type, scores, logits, qk_norm, context):
    for found in (read(version), describe({**SMALL, "model_type": model_type})):
        layer, last = found.layers[0], found.layers[-1]
        assert (layer.attention.softcap, found.softcap) == (scores, logits)
        assert (layer.attention.q_norm is not None, layer.attention.k_norm is not None) == (qk_norm, qk_norm)
        assert (layer.attention.head_dim, layer.attention.scale) == (256, 1 / 16)
        assert (found.final_norm.eps, found.tied, layer.mlp.activation) == (1e-6, True, "gelu_pytorch_tanh")
        assert (layer.attention.window, last.attention.window) == (4096, None)
        assert shape(config(version)).max_positions == context


@pytest.mark.parametrize("version", [2, 3])
def test_null_takes_a_soft_cap_out(version):
    found = read(version, attn_logit_softcapping=None, final_logit_softcapping=None)
    assert (found.layers[0].attention.softcap, found.softcap) == (None, None)
    found = read(version, attn_logit_softcapping=20.0, final_logit_softcapping=10)
    assert (found.layers[0].attention.softcap, found.softcap) == (20.0, 10.0)


@pytest.mark.parametrize(
    ("version", "changes", "full"),
    [
        (2, {}, {1, 3, 5}),
        (3, {}, {5}),
        (3, {"sliding_window_pattern": 4}, {3}),
        (3, {"layer_types": [FULL, SLIDING, SLIDING, FULL, SLIDING, SLIDING]}, {0, 3}),
    ],
)
def test_layers_that_see_the_whole_context(version, changes, full):
    found = read(version, sliding_window=16, **changes)
    assert {layer for layer, window in enumerate(windows(found)) if window is None} == full
    assert {window for window in windows(found) if window is not None} == {16}
    assert "sliding_window" in shape(config(version, sliding_window=16, **changes)).features


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 5e5, "rope_local_base_freq": 2e4, "rope_scaling": {"type": "linear", "factor": 8.0}},
        {
            "rope_parameters": {
                FULL: {**LINEAR, "rope_theta": 5e5},
                SLIDING: {"rope_type": "default", "rope_theta": 2e4},
            }
        },
    ],
    ids=["transformers-4", "transformers-5"],
)
def test_gemma_3_scales_the_rotary_embedding_of_full_attention_alone(changes):
    changes |= {"max_position_embeddings": 4096}
    layers = read(**changes).layers
    sliding, full = layers[0].attention.rope, layers[-1].attention.rope
    assert (full.rule, full.theta, full.factor) == ("linear", 5e5, 8.0)
    assert (sliding.rule, sliding.theta) == ("default", 2e4)
    facts = shape(config(**changes))
    # Linear scaling has made the context that these configurations name.
    assert (facts.max_positions, facts.default_positions) == (4096, 4096)
    assert facts.ropes == (sliding, full)


def test_gemma_2_has_one_rotary_embedding():
    facts = shape(config(2, rope_parameters={"rope_type": "default", "rope_theta": 3e4}))
    assert [rope.theta for rope in facts.ropes] == [3e4]
    assert [rope.theta for rope in shape(config(3)).ropes] == [1e4, 1e6]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"architectures": ["Gemma2Model"], "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"is_causal": False}, "is_causal"),
        ({"architectures": ["Gemma3nForCausalLM"]}, "Gemma, Gemma2, Gemma3, VaultGemma"),
        ({"layer_types": [FULL]}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 6}, "layer_types"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ({"final_logit_softcapping": 0.0}, "final_logit_softcapping"),
        ({"hidden_size": None}, "hidden_size"),
    ],
)
def test_what_is_not_supported_is_named(changes, text):
    with pytest.raises(CheckpointError, match=rf"CORE-M126 .*{text}"):
        read(**changes)


def test_manifest_and_shape_load_no_torch():
    code = "import json, sys, core_plugin_gemma.family as c, core_plugin_gemma.chat; c.shape(json.loads(sys.argv[1]))"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, json.dumps(config())], check=False).returncode == 0


@pytest.mark.parametrize("kinds", [None, [FULL] * 5 + ["chunked_attention"], [SLIDING] * 6])
def test_layers_of_rnj_1_see_the_whole_context(kinds):
    given = {**SMALL, "architectures": ["Rnj1ForCausalLM"], "layer_types": [FULL] * 6}
    assert windows(describe(given)) == (None,) * 6
    with pytest.raises(CheckpointError, match=r"CORE-M126 .*'layer_types' is .*alone are supported"):
        describe({**given, "layer_types": kinds})
