"""Configurations of the architectures, in the forms of transformers 4 and 5."""

from __future__ import annotations

import subprocess
import sys

import pytest
from core_plugin_decoder import Decoder
from core_plugin_llama.config import read as described
from core_plugin_llama.config import shape
from core_plugin_llama.manifest import LLAMA

from core.api import CheckpointError

SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}


def read(name: str = "Llama", **changes) -> Decoder:
    return described({**SMALL, "architectures": [f"{name}ForCausalLM"], **changes})


def test_what_is_missing_or_null_has_transformers_defaults():
    config = read(num_key_value_heads=None, head_dim=None)
    attention, rope = config.layers[0].attention, config.layers[0].attention.rope
    assert (attention.kv_heads, attention.head_dim, config.tied) == (8, 8, False)
    assert (config.final_norm.eps, config.layers[0].mlp.activation) == (1e-6, "silu")
    assert (rope.theta, rope.max_positions, rope.scaling) == (10000.0, 2048, {})
    assert read("Qwen3").layers[0].attention.head_dim == 128
    assert read("Qwen3", head_dim=32).layers[0].attention.head_dim == 32


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("Llama", {}, (False, False, False, False)),
        ("Llama", {"attention_bias": True, "mlp_bias": True}, (True, True, True, False)),
        ("Mistral", {"attention_bias": True}, (False, False, False, False)),
        ("Qwen2", {}, (True, False, False, False)),
        ("Qwen3", {}, (False, False, False, True)),
        ("Qwen3", {"attention_bias": True}, (True, True, False, True)),
    ],
)
def test_biases_and_query_key_norms(name, changes, expected):
    layer = read(name, **changes).layers[0]
    attention = layer.attention
    assert (attention.bias, attention.output_bias, layer.mlp.bias, attention.q_norm is not None) == expected


@pytest.mark.parametrize(
    ("name", "changes", "windows"),
    [
        ("Llama", {"sliding_window": 16}, (None,) * 4),
        ("Mistral", {"sliding_window": 16}, (16,) * 4),
        ("Mistral", {"sliding_window": None}, (None,) * 4),
        ("Qwen2", {"sliding_window": 16, "max_window_layers": 2}, (None,) * 4),
        ("Qwen2", {"sliding_window": 16, "max_window_layers": 3, "use_sliding_window": True}, (None, None, None, 16)),
        (
            "Qwen3",
            {
                "sliding_window": 16,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (16, None, 16, None),
        ),
    ],
)
def test_sliding_windows(name, changes, windows):
    assert tuple(layer.attention.window for layer in read(name, **changes).layers) == windows
    needed = {"sliding_window"} if any(windows) else set()
    assert shape({**SMALL, "architectures": [f"{name}ForCausalLM"], **changes}).features == needed


def test_both_forms_of_rotary_parameters_are_the_same():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": None}
    old = read(rope_theta=5e5, rope_scaling=scaling)
    new = read(rope_parameters={"rope_theta": 5e5, **scaling})
    rope = old.layers[0].attention.rope
    assert rope == new.layers[0].attention.rope
    assert rope.theta == 5e5
    assert "attention_factor" not in rope.scaling


def test_the_model_type_decides_where_no_architecture_is_named():
    assert described({**SMALL, "model_type": "qwen3"}).layers[0].attention.q_norm
    assert not described(SMALL).layers[0].attention.q_norm


def test_shape():
    found = shape({**SMALL, "num_key_value_heads": 2, "torch_dtype": "float16", "max_position_embeddings": 512})
    assert (found.vocab_size, found.max_positions, found.num_layers, found.hidden_size) == (100, 512, 4, 64)
    assert (found.num_heads, found.num_kv_heads, found.head_dim, found.dtype) == (8, 2, 8, "float16")


@pytest.mark.parametrize("value", [None, 0, -1, "64", True, 6.4])
def test_a_size_that_is_no_positive_integer_is_named(value):
    with pytest.raises(CheckpointError, match=r"CORE-M126 .*hidden_size"):
        read(hidden_size=value)


def test_layer_types_of_another_length_are_refused():
    with pytest.raises(CheckpointError, match=r"CORE-M126 .*layer_types"):
        read("Qwen2", sliding_window=4, use_sliding_window=True, layer_types=["full_attention"])


def test_rotary_parameters_by_kind_of_layer_are_refused():
    with pytest.raises(CheckpointError, match=r"CORE-M126 .*full_attention"):
        read(rope_parameters={"full_attention": {"rope_theta": 1e4}})


def test_manifest_and_shape_load_no_torch():
    code = "import sys, core_plugin_llama.manifest, core_plugin_llama.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert LLAMA.shape == "core_plugin_llama.config:shape"
